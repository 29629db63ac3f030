use std::borrow::Cow;
use std::collections::BTreeMap;

use fabro_condition::{Clause, Condition, Lookup, Operator};
use fabro_graph::{Node, NodeIx, NodeKind};
use fabro_types::Status;
use serde_json::Value;

use crate::checking::{Checking, text};
use crate::findings::Findings;

/// How many combinations of values are tried before conditions count as not complete.
const MAX_CASES: usize = 512;

/// Nodes that may be left with no edge to take: every edge has a condition, and the conditions do
/// not cover every case.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.nodes() {
        let count = checking.workflow.outgoing(ix).len();
        let conditions: Option<Vec<&Condition>> =
            checking.outgoing(ix).map(|(edge, _)| checking.condition(edge)).collect();
        let Some(conditions) = conditions.filter(|_| count > 0) else { continue };
        let Some(gap) = gap(checking, ix, node, &conditions) else { continue };
        let which = if count == 1 { "the only edge" } else { "every edge" };
        let message = format!("{which} of `{}` has a condition{gap}", node.id);
        let first = checking.outgoing(ix).next().map_or(node.span, |(_, edge)| edge.span);
        let fix = "add an edge without a condition for all other cases";
        findings.warning("all-conditional", first, message, fix);
    }
}

/// What is not covered, as the end of a sentence; `None` when everything is.
fn gap(
    checking: &Checking<'_>,
    ix: NodeIx,
    node: &Node,
    conditions: &[&Condition],
) -> Option<String> {
    let Some(mut values) = values(conditions) else { return Some(String::new()) };
    if let Some(words) = values.get_mut("outcome") {
        *words = outcomes(checking, ix, node, conditions);
    }
    let values: Vec<(&str, Vec<Value>)> = values.into_iter().collect();
    let cases = values.iter().map(|(_, of_key)| of_key.len()).try_fold(1, usize::checked_mul);
    let Some(cases) = cases.filter(|cases| *cases <= MAX_CASES) else { return Some(String::new()) };
    for number in 0..cases {
        // Like the digits of a number, each with a base of its own.
        let mut rest = number;
        let case: BTreeMap<&str, &Value> = values
            .iter()
            .map(|(key, of_key)| {
                let value = &of_key[rest % of_key.len()];
                rest /= of_key.len();
                (*key, value)
            })
            .collect();
        if !conditions.iter().any(|condition| condition.holds(&Case(&case))) {
            let shown: Vec<String> = case.iter().map(|(key, value)| shown(key, value)).collect();
            return Some(format!(", and none holds when {}", shown.join(" and ")));
        }
    }
    None
}

struct Case<'c>(&'c BTreeMap<&'c str, &'c Value>);

impl Lookup for Case<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, Value>> {
        self.0.get(key).map(|value| Cow::Borrowed(*value))
    }
}

/// For each key the values that can make a difference; `None` when they cannot be told.
fn values<'c>(conditions: &[&'c Condition]) -> Option<BTreeMap<&'c str, Vec<Value>>> {
    let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for clause in conditions.iter().flat_map(|condition| condition.clauses()) {
        let known = values
            .entry(clause.context_key())
            // Any text that nothing is compared with, and no text at all.
            .or_insert_with(|| vec![Value::from(OTHER), Value::from("")]);
        for value in of_clause(clause)? {
            if !known.contains(&value) {
                known.push(value);
            }
        }
        if known.len() > MAX_CASES {
            return None;
        }
    }
    Some(values)
}

/// Stands for every text that no condition names.
const OTHER: &str = "\u{1}other";

fn of_clause(clause: &Clause) -> Option<Vec<Value>> {
    let Some(operator) = clause.operator() else {
        return Some(vec![Value::from("false"), Value::from("0")]);
    };
    let value = clause.value()?;
    match operator {
        Operator::Equal | Operator::NotEqual => Some(vec![Value::from(value)]),
        Operator::Greater | Operator::Less | Operator::GreaterOrEqual | Operator::LessOrEqual => {
            let number: f64 = value.trim().parse().ok()?;
            let near = number.abs().max(1.0) * 1e-6;
            Some([number - near, number, number + near].into_iter().map(Value::from).collect())
        }
        _ => None,
    }
}

/// How the stage before can have ended, as conditions see it. A failure that has a retry
/// target, or that no edge can follow, is not a gap.
fn outcomes(
    checking: &Checking<'_>,
    ix: NodeIx,
    node: &Node,
    conditions: &[&Condition],
) -> Vec<Value> {
    let graph = checking.workflow.attrs();
    let targets = ["retry_target", "fallback_retry_target"];
    let recovers =
        targets.iter().any(|name| text(&node.attrs, name).or(text(graph, name)).is_some());
    let partial = node.attrs.bool("allow_partial") == Some(true);
    let only_two = matches!(node.kind, NodeKind::Command | NodeKind::Wait | NodeKind::Start)
        && !partial
        || (node.kind == NodeKind::Conditional && follows_commands(checking, ix));
    let mut outcomes = vec![Status::Succeeded];
    if !recovers {
        outcomes.push(Status::Failed);
    }
    if !only_two {
        outcomes.extend([Status::PartiallySucceeded, Status::Skipped]);
    }
    let words = conditions.iter().flat_map(|condition| condition.outcome_words());
    let words = words.filter(|word| Status::parse(word).is_none() && !only_two);
    outcomes.iter().map(|status| status.as_str()).chain(words).map(Value::from).collect()
}

/// Only stages that succeed or fail, and nothing else, come right before this conditional node.
fn follows_commands(checking: &Checking<'_>, ix: NodeIx) -> bool {
    checking.workflow.incoming(ix).map(|edge| checking.workflow.edge(edge).from).all(|from| {
        let node = checking.workflow.node(from);
        node.kind == NodeKind::Command && node.attrs.bool("allow_partial") != Some(true)
    })
}

fn shown(key: &str, value: &Value) -> String {
    match value.as_str() {
        Some(OTHER) => format!("`{key}` is anything else"),
        Some("") => format!("`{key}` is empty"),
        Some(text) => format!("`{key}` is `{text}`"),
        None => format!("`{key}` is {value}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_gap_is_told_by_an_example() {
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; b -> exit"#), @r"
        1:25 warning: the only edge of `a` has a condition, and none holds when `outcome` is `failed`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @r"
        1:25 warning: every edge of `a` has a condition, and none holds when `outcome` is `partially_succeeded`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=parallelogram, script=x, allow_partial=true]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @r"
        1:80 warning: every edge of `a` has a condition, and none holds when `outcome` is `partially_succeeded`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="context.verdict=ship"]; a -> c [condition="context.verdict=hold || !context.verdict"]; b -> exit; c -> exit"#), @r"
        1:25 warning: every edge of `a` has a condition, and none holds when `verdict` is anything else
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="score >= 80"]; a -> c [condition="score < 80"]; b -> exit; c -> exit"#), @r"
        1:25 warning: every edge of `a` has a condition, and none holds when `score` is anything else
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=needs_dod"]; a -> c [condition="outcome=success || outcome=fail || outcome=partial_success"]; b -> exit; c -> exit"#), @r"
        1:25 warning: every edge of `a` has a condition, and none holds when `outcome` is `skipped`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="log contains x"]; b -> exit"#), @r"
        1:25 warning: the only edge of `a` has a condition
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=component]; a -> b [condition="x"]; b -> exit"#), @r"
        1:46 warning: the only edge of `a` has a condition, and none holds when `x` is empty
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
    }

    #[test]
    fn what_covers_every_case_is_left_alone() {
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; a -> c; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=parallelogram, script=x]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> t; t [shape=parallelogram, script=x]; t -> a; a [shape=diamond]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; a -> c [condition="outcome!=success"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="context.done"]; a -> c [condition="!context.done"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success && context.done"]; a -> c [condition="outcome=success && !done"]; a -> d [condition="outcome!=success"]; b -> exit; c -> exit; d -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=parallelogram, script=x, retry_target=a]; a -> exit [condition="outcome=success"]"#), @"nothing");
    }
}
