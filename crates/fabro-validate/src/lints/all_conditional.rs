use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fabro_condition::{Clause, Condition, Lookup, Operator};
use fabro_graph::{Node, NodeIx, NodeKind};
use fabro_types::Status;
use serde_json::Value;

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;
use crate::lints::label_condition::meant_as_label;

/// How many combinations of values are tried before conditions count as not complete.
const MAX_CASES: usize = 512;

/// Nodes that may be left with no edge to take: every edge has a condition, and the conditions do
/// not cover every case.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.nodes() {
        let count = checking.workflow.outgoing(ix).len();
        // That has a finding of its own.
        if checking.outgoing(ix).any(|(edge, _)| meant_as_label(checking, edge).is_some()) {
            continue;
        }
        let conditions: Option<Vec<&Condition>> =
            checking.outgoing(ix).map(|(edge, _)| checking.condition(edge)).collect();
        let Some(conditions) = conditions.filter(|_| count > 0) else { continue };
        let Some(gap) = gap(checking, ix, &conditions) else { continue };
        let which = if count == 1 { "the only edge" } else { "every edge" };
        let message = format!("{which} of `{}` has a condition{gap}", node.id);
        let first = checking.outgoing(ix).next().map_or(node.span, |(_, edge)| edge.span);
        let fix = "add an edge without a condition for all other cases";
        findings.warning("all-conditional", first, message, fix);
    }
}

/// What is not covered, as the end of a sentence; `None` when everything is.
fn gap(checking: &Checking<'_>, ix: NodeIx, conditions: &[&Condition]) -> Option<String> {
    // Conditions that cannot be analyzed are skipped: the rest may be exhaustive.
    let known: Vec<&Condition> =
        conditions.iter().copied().filter(|it| values(&[it]).is_some()).collect();
    if known.len() < conditions.len() {
        let is_covered = !known.is_empty() && gap(checking, ix, &known).is_none();
        return if is_covered { None } else { Some(String::new()) };
    }
    let Some(mut values) = values(conditions) else { return Some(String::new()) };
    if let Some(words) = values.get_mut("outcome") {
        *words = outcomes(checking, ix, conditions);
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

/// For each key the values that can make a difference; `None` when they cannot be determined.
fn values<'c>(conditions: &[&'c Condition]) -> Option<BTreeMap<&'c str, Vec<Value>>> {
    let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for clause in conditions.iter().flat_map(|condition| condition.clauses()) {
        let known =
            values.entry(clause.context_key()).or_insert_with(|| others(clause.context_key()));
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

/// Any text that nothing is compared with, and no text at all; what the engine counts is a number.
fn others(key: &str) -> Vec<Value> {
    if key.starts_with("internal.") || key == "command.exit_code" {
        return Vec::new();
    }
    vec![Value::from(OTHER), Value::from("")]
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

/// How the stages before can have ended, as conditions see it. A failure is no case: a stage that
/// fails where no edge can follow ends the run with its reason, which is how people write "stop here".
/// `partially_succeeded` and `skipped` count only where something can set them, and a model that is
/// asked for words of its own ends with one of these.
fn outcomes(checking: &Checking<'_>, ix: NodeIx, conditions: &[&Condition]) -> Vec<Value> {
    let words: BTreeSet<&str> =
        conditions.iter().flat_map(|condition| condition.outcome_words()).collect();
    let stages = checking.stages_before_edges(ix);
    let is_asked = |at: &NodeIx| is_asked_for(checking.workflow.node(*at), &words);
    let mut outcomes = Vec::new();
    if !stages.iter().all(is_asked) || stages.is_empty() {
        outcomes.push(Status::Succeeded);
    }
    let nodes = || stages.iter().map(|at| checking.workflow.node(*at));
    if nodes().any(|node| node.attrs.is_true("allow_partial")) {
        outcomes.push(Status::PartiallySucceeded);
    }
    for status in [Status::PartiallySucceeded, Status::Skipped] {
        if !outcomes.contains(&status) && nodes().any(|node| can_be_known(node, status)) {
            outcomes.push(status);
        }
    }
    let own = words.into_iter().filter(|word| Status::parse(word).is_none());
    outcomes.iter().map(|status| status.as_str()).chain(own).map(Value::from).collect()
}

/// A model whose prompt has all the words that conditions compare with, two at least, none of them
/// the usual ones.
fn is_asked_for(node: &Node, words: &BTreeSet<&str>) -> bool {
    let usual =
        |word: &&str| matches!(Status::parse(word), Some(status) if status != Status::Skipped);
    words.len() > 1
        && node.kind.is_llm()
        && !words.iter().any(usual)
        && text(&node.attrs, "prompt").is_some_and(|it| words.iter().all(|word| it.contains(word)))
}

/// Whether the prompt of a model names this status as an outcome.
fn can_be_known(node: &Node, status: Status) -> bool {
    if !node.kind.is_llm() && node.kind != NodeKind::FanIn {
        return false;
    }
    let Some(prompt) = text(&node.attrs, "prompt") else { return false };
    let is_value = |at: usize| {
        let key = prompt[..at].trim_end_matches([' ', '"', '\'', '`', '\\', ':', '=']);
        key.len() < at && (key.ends_with("outcome") || key.ends_with("status"))
    };
    match status {
        Status::Skipped => prompt.match_indices("skip").any(|(at, _)| is_value(at)),
        _ => ["partial_success", "partially_succeeded"].iter().any(|word| prompt.contains(word)),
    }
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
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=fail"]; b -> exit"#), @r"
        1:25 warning: the only edge of `a` has a condition, and none holds when `outcome` is `succeeded`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [prompt="End with success, partial_success or fail."]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @r"
        1:82 warning: every edge of `a` has a condition, and none holds when `outcome` is `partially_succeeded`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=parallelogram, script=x, allow_partial=true]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @r"
        1:80 warning: every edge of `a` has a condition, and none holds when `outcome` is `partially_succeeded`
          at: a -> b
          fix: add an edge without a condition for all other cases
        ");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a -> d; a [prompt="Say outcome: skipped when there is nothing to do."]; d [shape=diamond]; d -> b [condition="outcome=success"]; d -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @r"
        1:113 warning: every edge of `d` has a condition, and none holds when `outcome` is `skipped`
          at: d -> b
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
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [prompt=x]; a -> b [condition="outcome=needs_dod"]; a -> c [condition="outcome=has_dod"]; b -> exit; c -> exit"#), @r"
        1:39 warning: every edge of `a` has a condition, and none holds when `outcome` is `succeeded`
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
    fn a_success_only_edge_stops_at_a_failure() {
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; b -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [prompt="Skip tests that were skipped before, do partial work."]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [prompt="End with outcome=needs_dod or outcome=has_dod."]; a -> b [condition="outcome=needs_dod"]; a -> c [condition="outcome=has_dod"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="internal.node_visit_count < 3"]; a -> exit [condition="internal.node_visit_count >= 3"]; b -> a"#), @"nothing");
    }

    #[test]
    fn what_covers_every_case_is_left_alone() {
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail && internal.node_visit_count >= {{ inputs.n }}"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; a -> c; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=parallelogram, script=x]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> t; t [shape=parallelogram, script=x]; t -> a; a [shape=diamond]; a -> b [condition="outcome=success"]; a -> c [condition="outcome=fail"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success"]; a -> c [condition="outcome!=success"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="context.done"]; a -> c [condition="!context.done"]; b -> exit; c -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a -> b [condition="outcome=success && context.done"]; a -> c [condition="outcome=success && !done"]; a -> d [condition="outcome!=success"]; b -> exit; c -> exit; d -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("all-conditional", r#"start -> a; a [shape=parallelogram, script=x, retry_target=a]; a -> exit [condition="outcome=success"]"#), @"nothing");
    }
}
