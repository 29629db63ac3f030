use fabro_graph::{EdgeIx, NodeKind};
use fabro_types::key_refusal;

use crate::checking::Checking;
use crate::findings::Findings;

/// Conditions that are the label of their edge: `condition="Approve"`.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for ix in checking.workflow.edge_indices() {
        let Some(word) = meant_as_label(checking, ix) else { continue };
        let edge = checking.workflow.edge(ix);
        let Some(attr) = edge.attrs.get("condition") else { continue };
        let message = format!(
            "the condition reads a context key `{word}`, which no stage writes: the edge is never taken"
        );
        let fix = format!("did you mean label=\"{word}\"?");
        findings.warning("label-condition", attr.span, message, fix);
    }
}

/// The condition of an edge when it is a word alone that can hardly be a key: one that no text for a model
/// mentions, at a human gate, or elsewhere one with a capital letter that no text asks models to write.
pub(super) fn meant_as_label<'a>(checking: &Checking<'a>, ix: EdgeIx) -> Option<&'a str> {
    let edge = checking.workflow.edge(ix);
    let condition = checking.condition(ix)?;
    let [clause] = condition.clauses() else { return None };
    let word = edge.condition()?.trim();
    if clause.operator().is_some() || word != clause.key() || word.contains('.') {
        return None;
    }
    let element = word.strip_suffix("_index").unwrap_or(word);
    if key_refusal(word).is_some() || checking.elements().contains(element) {
        return None;
    }
    let mentions = &checking.mentions;
    let is_name = word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase);
    let is_gate = checking.workflow.node(edge.from).kind == NodeKind::Human;
    let is_label = match (is_name, is_gate) {
        (true, _) => !mentions.updates().contains(word),
        (false, true) => !mentions.has(word),
        (false, false) => false,
    };
    is_label.then_some(word)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    fn of(body: &str) -> String {
        let body = format!(
            "start -> plan -> ask; plan [prompt=\"Plan. Set approved in context_updates: {{\\\"Ready\\\": true}}\"]; ask [shape=hexagon]; {body}"
        );
        for rule in ["unwritten-key", "all-conditional"] {
            assert_eq!(reported(rule, &body), "nothing", "{body}");
        }
        reported("label-condition", &body)
    }

    #[test]
    fn a_label_is_no_condition() {
        insta::assert_snapshot!(of(r#"ask -> exit [condition="Approve"]; ask -> plan [condition="revise"]"#), @r#"
        1:153 warning: the condition reads a context key `Approve`, which no stage writes: the edge is never taken
          at: "Approve"
          fix: did you mean label="Approve"?
        1:188 warning: the condition reads a context key `revise`, which no stage writes: the edge is never taken
          at: "revise"
          fix: did you mean label="revise"?
        "#);
        insta::assert_snapshot!(of("ask -> check -> exit [condition=Done]; check -> plan"), @r#"
        1:162 warning: the condition reads a context key `Done`, which no stage writes: the edge is never taken
          at: Done
          fix: did you mean label="Done"?
        "#);
    }

    #[test]
    fn words_that_are_keys() {
        for condition in [
            "Ready",
            "approved",
            "outcome",
            "!Done",
            "context.Done",
            "Done = yes",
            "A && B",
            "TESTS",
        ] {
            let body =
                format!("ask -> check; check -> exit [condition=\"{condition}\"]; check -> plan");
            assert_eq!(of(&body), "nothing", "{condition}");
        }
        assert_eq!(of("ask -> exit [condition=approved]; ask -> plan"), "nothing");
    }
}
