use std::collections::HashSet;

use fabro_condition::{Clause, Operator, is_number};
use fabro_graph::{NodeKind, Span};
use fabro_plan::Constants;
use fabro_template::Template;
use fabro_types::Status;

use crate::checking::Checking;
use crate::findings::Findings;

/// Operators of other languages, which the condition reads as a part of the value: the comparison
/// then hardly ever holds.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let edges = workflow
        .edge_indices()
        .map(|ix| (workflow.edge(ix).attrs.get("condition"), checking.condition(ix)));
    let managers = checking
        .of_kind(NodeKind::ManagerLoop)
        .map(|(ix, node)| (node.attrs.get("manager.stop_condition"), checking.stop_condition(ix)));
    let mut seen = HashSet::new();
    for (attr, condition) in edges.chain(managers) {
        let (Some(attr), Some(condition)) = (attr, condition) else { continue };
        if !seen.insert(attr.span) {
            continue;
        }
        for clause in condition.clauses() {
            let found = wrong_operator(clause).or_else(|| no_number(checking, clause));
            let Some((span, message, fix)) = found else { continue };
            findings.warning("condition-operator", checking.place(attr, span), message, fix);
        }
    }
}

/// What is written in place of an operator, what it is read as, and what to write.
pub(super) fn wrong_operator(clause: &Clause) -> Option<(Span, String, String)> {
    let rest = clause.text().strip_prefix(clause.key())?;
    let operator = rest.trim_start();
    let start = clause.span().start + clause.key().len() + rest.len() - operator.len();
    let length = operator.find(|c| !"=<>!~".contains(c)).unwrap_or(operator.len());
    let written = &operator[..length];
    if let Some(meant) = meant_by(written) {
        let value = operator[length..].trim();
        let message =
            format!("`{written}` is not an operator: the value is read as `{}`", clause.value()?);
        let fix = format!("write {} {meant} {value}", clause.key());
        return Some((Span::new(start, start + length), message, fix));
    }
    let value = match clause.operator()? {
        Operator::Matches | Operator::NotMatches => {
            return single_quotes(clause, value_of_word(operator)?);
        }
        Operator::Contains | Operator::NotContains => value_of_word(operator)?,
        _ => operator[length..].trim_start(),
    };
    let at = start + operator.len() - value.len();
    let joint = match clause.context_key() {
        "outcome" => joint(value).or_else(|| after_status(value)),
        _ => joint(value),
    };
    let Some(joint) = joint else { return single_quotes(clause, value) };
    let span = Span::new(at + joint.start, at + joint.end);
    let word = &value[joint.start..joint.end];
    let message = format!("`{word}` does not join conditions: it is a part of the value here");
    let or = word.eq_ignore_ascii_case("or") || word == "|";
    let fix = format!("write `{}`, or put the value in quotes", if or { "||" } else { "&&" });
    Some((span, message, fix))
}

/// A numeric operator beside a value that is no number, also one of an input. The clause never holds.
fn no_number(checking: &Checking<'_>, clause: &Clause) -> Option<(Span, String, String)> {
    let operator = clause.operator().filter(|operator| operator.is_numeric())?;
    let written = clause.value()?;
    let value = match checking.inputs {
        Some(inputs) if written.contains("{{") => {
            let template = Template::parse(written).ok()?;
            Constants::new("", inputs).render(&template).ok()?
        }
        _ => written.to_owned(),
    };
    if value.contains("{{") || is_number(&value) {
        return None;
    }
    let operator = operator.as_str();
    let message = if value.is_empty() {
        format!("`{operator}` needs a number, but the value is empty: it never holds")
    } else if value == written {
        format!("`{operator}` needs a number, but `{value}` is not one: it never holds")
    } else {
        format!("`{operator}` needs a number, but `{written}` is `{value}`: it never holds")
    };
    Some((clause.span(), message, "write a number, or compare texts with = or !=".to_owned()))
}

/// What comes after `contains`, `matches` or their opposites.
fn value_of_word(operator: &str) -> Option<&str> {
    let word = operator.trim_start_matches('!').trim_start();
    Some(word[word.find(|c: char| !c.is_alphabetic())?..].trim_start())
}

/// A value that is written in single quotes, which belong to it. A value that really has them can be
/// written in double quotes.
fn single_quotes(clause: &Clause, value: &str) -> Option<(Span, String, String)> {
    let inner = value.strip_prefix('\'')?.strip_suffix('\'')?;
    if inner.contains('\'') {
        return None;
    }
    let end = clause.span().end;
    let operator = clause.operator()?.as_str();
    let message = format!(
        "single quotes are a part of the value: `{}` is compared with `{value}`",
        clause.key()
    );
    let meant = if inner.contains('"') {
        r#"\"…\""#.to_owned()
    } else if inner.is_empty() || inner != inner.trim() {
        format!(r#"\"{inner}\""#)
    } else {
        inner.to_owned()
    };
    let fix = format!(
        "write {} {operator} {meant}; if the quotes belong to the value: \\\"{value}\\\"",
        clause.key()
    );
    Some((Span::new(end - value.len(), end), message, fix))
}

fn meant_by(written: &str) -> Option<&'static str> {
    Some(match written {
        "=>" | ">>=" | "==>" => ">=",
        "=<" | "<<=" => "<=",
        "===" => "=",
        "!==" | "<>" | "=!" => "!=",
        ">>" => ">",
        "<<" => "<",
        "=~" | "==~" => "matches",
        _ => return None,
    })
}

const JOINTS: [&str; 7] = [" and ", " or ", " AND ", " OR ", "&", "|", ","];

/// `and`, `or`, a comma, a single `&` or `|` in an unquoted value, with another clause after it.
fn joint(value: &str) -> Option<Span> {
    if value.starts_with('"') {
        return None;
    }
    JOINTS.iter().find_map(|joint| {
        let at = value.find(joint)?;
        let next = value[at + joint.len()..].trim_start();
        let key = next.find(|c: char| !(c.is_alphanumeric() || "._-".contains(c)))?;
        let operator = next[key..].trim_start();
        let is_clause = operator.starts_with(['=', '<', '>'])
            || ["!=", "contains ", "matches "].iter().any(|it| operator.starts_with(it));
        let start = at + joint.len() - joint.trim_start().len();
        (key > 0 && is_clause).then(|| Span::new(start, start + joint.trim().len()))
    })
}

/// The same directly after a status, and any text after it.
fn after_status(value: &str) -> Option<Span> {
    let status = value.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    Status::parse(&value[..status])?;
    let rest = &value[status..];
    let joint = JOINTS.iter().find(|joint| {
        let word = joint.trim();
        rest.starts_with(**joint)
            || rest.trim_start().strip_prefix(word).is_some() && word.len() == 1
    })?;
    let start = value.len() - rest.trim_start().len();
    Some(Span::new(start, start + joint.trim().len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::support::{reported, reported_with};

    fn of(condition: &str) -> String {
        let condition = condition.replace('"', "\\\"");
        let body = format!("start -> a; a -> b [condition=\"{condition}\"]; a -> exit; b -> exit");
        reported("condition-operator", &body)
    }

    #[test]
    fn operators_of_other_languages() {
        insta::assert_snapshot!(of("score >>= 80"), @r"
        1:50 warning: `>>=` is not an operator: the value is read as `>= 80`
          at: >>=
          fix: write score >= 80
        ");
        insta::assert_snapshot!(of("score => 80"), @r"
        1:50 warning: `=>` is not an operator: the value is read as `> 80`
          at: =>
          fix: write score >= 80
        ");
        insta::assert_snapshot!(of("score =< 80 && outcome=success"), @r"
        1:50 warning: `=<` is not an operator: the value is read as `< 80`
          at: =<
          fix: write score <= 80
        ");
        insta::assert_snapshot!(of("context.kind === bug"), @r"
        1:57 warning: `===` is not an operator: the value is read as `= bug`
          at: ===
          fix: write context.kind = bug
        ");
        insta::assert_snapshot!(of("kind <> bug"), @r"
        1:49 warning: `<>` is not an operator: the value is read as `> bug`
          at: <>
          fix: write kind != bug
        ");
        insta::assert_snapshot!(of("log =~ ^a+$"), @r"
        1:48 warning: `=~` is not an operator: the value is read as `~ ^a+$`
          at: =~
          fix: write log matches ^a+$
        ");
        insta::assert_snapshot!(of("outcome=success and score > 3"), @r"
        1:60 warning: `and` does not join conditions: it is a part of the value here
          at: and
          fix: write `&&`, or put the value in quotes
        ");
        insta::assert_snapshot!(of("outcome=success OR outcome = fail"), @r"
        1:60 warning: `OR` does not join conditions: it is a part of the value here
          at: OR
          fix: write `||`, or put the value in quotes
        ");
        insta::assert_snapshot!(of("outcome=success & context.ready=true"), @r"
        1:60 warning: `&` does not join conditions: it is a part of the value here
          at: &
          fix: write `&&`, or put the value in quotes
        ");
        insta::assert_snapshot!(of("outcome=success, context.ready=true"), @r"
        1:59 warning: `,` does not join conditions: it is a part of the value here
          at: ,
          fix: write `&&`, or put the value in quotes
        ");
        insta::assert_snapshot!(of("context.outcome=success and !context.blocked"), @r"
        1:68 warning: `and` does not join conditions: it is a part of the value here
          at: and
          fix: write `&&`, or put the value in quotes
        ");
        insta::assert_snapshot!(of("outcome=success | outcome=fail"), @r"
        1:60 warning: `|` does not join conditions: it is a part of the value here
          at: |
          fix: write `||`, or put the value in quotes
        ");
    }

    #[test]
    fn numeric_operators_compare_numbers() {
        insta::assert_snapshot!(of("command.exit_code > abc || score <= "), @r"
        1:44 warning: `>` needs a number, but `abc` is not one: it never holds
          at: command.exit_code > abc
          fix: write a number, or compare texts with = or !=
        1:71 warning: `<=` needs a number, but the value is empty: it never holds
          at: score <=
          fix: write a number, or compare texts with = or !=
        ");
        let body = "start -> a; a -> b [condition=\"score >= {{ inputs.cap }} && score < {{ inputs.n }}\"]; a -> exit; b -> exit";
        let inputs = json!({"cap": "two", "n": 3});
        insta::assert_snapshot!(reported_with("condition-operator", body, &[], Some(inputs)), @r"
        1:44 warning: `>=` needs a number, but `{{ inputs.cap }}` is `two`: it never holds
          at: score >= {{ inputs.cap }}
          fix: write a number, or compare texts with = or !=
        ");
        assert_eq!(reported("condition-operator", body), "nothing");
    }

    #[test]
    fn single_quotes_are_a_part_of_the_value() {
        insta::assert_snapshot!(of("last_response contains 'APPROVE'"), @r#"
        1:67 warning: single quotes are a part of the value: `last_response` is compared with `'APPROVE'`
          at: 'APPROVE'
          fix: write last_response contains APPROVE; if the quotes belong to the value: \"'APPROVE'\"
        "#);
        insta::assert_snapshot!(of("context.kind == 'bug' && outcome != 'fail'"), @r#"
        1:60 warning: single quotes are a part of the value: `context.kind` is compared with `'bug'`
          at: 'bug'
          fix: write context.kind = bug; if the quotes belong to the value: \"'bug'\"
        1:80 warning: single quotes are a part of the value: `outcome` is compared with `'fail'`
          at: 'fail'
          fix: write outcome != fail; if the quotes belong to the value: \"'fail'\"
        "#);
        insta::assert_snapshot!(of("context.log matches '^error'"), @r#"
        1:64 warning: single quotes are a part of the value: `context.log` is compared with `'^error'`
          at: '^error'
          fix: write context.log matches ^error; if the quotes belong to the value: \"'^error'\"
        "#);
        insta::assert_snapshot!(of("context.kind !contains 'a (b)' || context.note = ''"), @r#"
        1:67 warning: single quotes are a part of the value: `context.kind` is compared with `'a (b)'`
          at: 'a (b)'
          fix: write context.kind !contains a (b); if the quotes belong to the value: \"'a (b)'\"
        1:93 warning: single quotes are a part of the value: `context.note` is compared with `''`
          at: ''
          fix: write context.note = \"\"; if the quotes belong to the value: \"''\"
        "#);
        insta::assert_snapshot!(of("context.kind = 'bug' and outcome = success"), @r"
        1:65 warning: `and` does not join conditions: it is a part of the value here
          at: and
          fix: write `&&`, or put the value in quotes
        ");
    }

    #[test]
    fn stop_conditions_are_conditions() {
        let body = r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> exit }", manager.stop_condition="last_stage = 'done'"]"#;
        insta::assert_snapshot!(reported("condition-operator", body), @r#"
        1:138 warning: single quotes are a part of the value: `last_stage` is compared with `'done'`
          at: 'done'
          fix: write last_stage = done; if the quotes belong to the value: \"'done'\"
        "#);
    }

    #[test]
    fn values_that_only_look_like_it() {
        for condition in [
            "score >= 80 && a == b || c != d",
            "title = this and that",
            "title = \"a and b=c\"",
            "pair = \"=> x\"",
            "kind = \"'bug'\"",
            "kind = don't",
            "kind = 'a' 'b'",
            "log matches ^(a=1|b=2)$",
            "list = R&D",
            "ready",
            "name=",
            "cities = Paris, London",
            "outcome = needs and wants",
        ] {
            assert_eq!(of(condition), "nothing", "{condition}");
        }
    }
}
