//! As much of a `TextMate` engine as the grammar needs, to check which scope each part of a workflow
//! gets.

use std::ops::Range;
use std::sync::OnceLock;

use fabro_graph::Workflow;
use fabro_graph::schema::{OLDER_NAMES, find_anywhere};
use regex::{Captures, Regex};
use serde_json::Value;

/// A pattern of the grammar.
struct Rule {
    begin: Regex,
    end: Option<Regex>,
    name: Option<String>,
    captures: Vec<(usize, String)>,
    patterns: Vec<Rule>,
}

/// The patterns of the grammar; those of `#name` are copied in.
fn rules(patterns: &Value, grammar: &Value) -> Vec<Rule> {
    let mut rules = Vec::new();
    for pattern in patterns.as_array().into_iter().flatten() {
        if let Some(include) = pattern["include"].as_str() {
            let included = &grammar["repository"][include.trim_start_matches('#')];
            let single = Value::Array(vec![included.clone()]);
            let list = included.get("begin").or_else(|| included.get("match")).map(|_| &single);
            rules.extend(self::rules(list.unwrap_or(&included["patterns"]), grammar));
            continue;
        }
        let text = |key: &str| pattern[key].as_str();
        let Some(begin) = text("match").or_else(|| text("begin")) else { continue };
        let captures = pattern.get("captures").or_else(|| pattern.get("beginCaptures"));
        let captures = captures.and_then(Value::as_object).into_iter().flatten();
        let scope = |(group, capture): (&String, &Value)| {
            Some((group.parse().ok()?, capture["name"].as_str()?.to_owned()))
        };
        rules.push(Rule {
            begin: regex(begin),
            end: text("end").map(regex),
            name: text("name").map(str::to_owned),
            captures: captures.filter_map(scope).collect(),
            patterns: self::rules(&pattern["patterns"], grammar),
        });
    }
    rules
}

#[expect(clippy::expect_used, reason = "the expressions are constants of the grammar, and tested")]
fn regex(text: &str) -> Regex {
    Regex::new(text).expect("the grammar has valid expressions")
}

/// The stretches of `source` that get a scope, in order; the inner one of two comes later.
fn scopes(source: &str) -> Vec<(Range<usize>, String)> {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let grammar = super::grammar();
        self::rules(&grammar["patterns"], &grammar)
    });
    let mut found = Vec::new();
    let mut open: Vec<(&Rule, usize)> = Vec::new();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let text = line.trim_end_matches(['\n', '\r']);
        let mut at = 0;
        while at <= text.len() {
            let current = open.last().map_or(rules, |(rule, _)| &rule.patterns);
            let end = open.last().and_then(|(rule, _)| rule.end.as_ref()?.find_at(text, at));
            let begins =
                current.iter().filter_map(|rule| Some((rule.begin.captures_at(text, at)?, rule)));
            // The first of those that begin at the same place.
            let next = begins.min_by_key(|(captures, _)| whole(captures).start);
            let next = next
                .filter(|(captures, _)| end.is_none_or(|end| whole(captures).start < end.start()));
            let Some((captures, rule)) = next else {
                let (Some(end), Some((rule, from))) = (end, open.last()) else { break };
                found.extend(rule.name.clone().map(|name| (*from..start + end.end(), name)));
                open.pop();
                at = end.end();
                continue;
            };
            let whole = whole(&captures);
            let from = start + whole.start;
            if rule.end.is_some() {
                open.push((rule, from));
            } else {
                let to = start + whole.end;
                found.extend(rule.name.clone().map(|name| (from..to, name)));
            }
            for (group, name) in &rule.captures {
                if let Some(part) = captures.get(*group) {
                    found.push((start + part.start()..start + part.end(), name.clone()));
                }
            }
            // An empty match would be found again.
            at = if whole.is_empty() { whole.end + 1 } else { whole.end };
        }
        start += line.len();
    }
    found
}

fn whole(captures: &Captures<'_>) -> Range<usize> {
    captures.get_match().range()
}

/// The attributes of a workflow that the grammar does not show as such.
pub(crate) fn complaints(file: &str, source: &str) -> Vec<String> {
    let Ok(workflow) = Workflow::from_source("w", source) else { return Vec::new() };
    let scopes = scopes(source);
    let mut found = Vec::new();
    for (_, attr) in workflow.written_attrs() {
        let span = attr.key_span.start..attr.key_span.end;
        let scope = scopes.iter().find(|(range, _)| *range == span).map(|(_, name)| name.as_str());
        // `node_type` is one of ours with some values only.
        let is_older = OLDER_NAMES.iter().any(|older| older.older == attr.written);
        let expected = if is_older || find_anywhere(&attr.name).is_some() {
            "support.type.property-name.fabro"
        } else {
            "variable.other.property.fabro"
        };
        let is_quoted = source[span.clone()].starts_with('"');
        if scope != Some(expected) && !(is_quoted && scope.is_none()) {
            let text = &source[span.clone()];
            found.push(format!("{file}: `{text}` at {} is {scope:?}, not {expected}", span.start));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, text: &str, scope: &str) {
        let at = source.find(text).unwrap();
        let range = at..at + text.len();
        let scopes = scopes(source);
        let names: Vec<_> =
            scopes.iter().filter(|(it, _)| *it == range).map(|(_, name)| name).collect();
        assert!(names.iter().any(|name| name.starts_with(scope)), "{text}: {names:?}");
    }

    #[test]
    fn each_part_has_its_scope() {
        let source = r#"// about
digraph Demo {
    # note
    goal="Say \"hi\" to {{ inputs.who | upper }}"
    node [timeout=15m, color=red]
    ask [shape=hexagon, human.default_choice=no, "max_visits"=3, inputs.repo=x]
    fan [join_policy=wait_all, goal_gate=true, max_cost=2.5]
    model_stylesheet="
        .hard { model: gpt-5.2; }
    "
    a -> b [condition="outcome=fail && context.score >= 80"] /* two
    lines */
}"#;
        for (text, scope) in [
            ("// about", "comment.line"),
            ("    # note", "comment.line"),
            ("/* two\n    lines */", "comment.block"),
            ("digraph", "storage.type"),
            ("node", "storage.type"),
            ("goal", "support.type.property-name"),
            ("\\\"", "constant.character.escape"),
            ("{{ inputs.who | upper }}", "meta.template"),
            ("inputs", "variable.language"),
            ("upper", "support.function"),
            ("timeout", "support.type.property-name"),
            ("15m", "constant.numeric.duration"),
            ("color", "variable.other.property"),
            ("hexagon", "support.constant"),
            ("human.default_choice", "support.type.property-name"),
            ("\"max_visits\"", "support.type.property-name"),
            ("inputs.repo", "support.type.property-name"),
            ("wait_all", "support.constant"),
            ("true", "constant.language"),
            ("2.5", "constant.numeric"),
            ("model_stylesheet", "support.type.property-name"),
            (".hard", "entity.name.tag"),
            ("->", "keyword.operator.arrow"),
            ("condition", "support.type.property-name"),
            ("outcome", "variable.language"),
            ("fail", "constant.language"),
            ("&&", "keyword.operator.logical"),
            ("context.score", "variable.other"),
            (">=", "keyword.operator.logical"),
            ("80", "constant.numeric"),
        ] {
            check(source, text, scope);
        }
        assert_eq!(complaints("w", source), Vec::<String>::new());
    }
}
