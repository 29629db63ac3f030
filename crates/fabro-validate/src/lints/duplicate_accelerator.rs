use std::collections::BTreeMap;

use fabro_graph::NodeKind;
use fabro_types::accelerator;

use crate::checking::Checking;
use crate::findings::Findings;

/// Two options of a human gate that are chosen by the same key.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, gate) in checking.of_kind(NodeKind::Human) {
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        for (_, edge) in checking.outgoing(ix) {
            let Some(label) = edge.label() else { continue };
            let Some(attr) = edge.attrs.get("label") else { continue };
            let Some(key) = accelerator(label).0.map(str::to_lowercase) else { continue };
            if edge.attrs.bool("freeform") == Some(true) {
                continue;
            }
            if let Some(earlier) = taken.get(&key) {
                let message = format!(
                    "`{label}` has the same key as `{earlier}`, another option of `{}`",
                    gate.id
                );
                let fix = "give it a key of its own";
                findings.error("duplicate-accelerator", attr.span, message, fix);
            } else {
                taken.insert(key, label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn keys_of_a_gate_differ() {
        insta::assert_snapshot!(reported("duplicate-accelerator", r#"start -> g; g [shape=hexagon]; g -> a [label="[A] Approve"]; g -> b [label="a) Abort"]; a -> exit; b -> exit"#), @r#"
        1:88 error: `a) Abort` has the same key as `[A] Approve`, another option of `g`
          at: "a) Abort"
          fix: give it a key of its own
        "#);
        insta::assert_snapshot!(reported("duplicate-accelerator", r#"start -> g; g [shape=hexagon]; g -> a [label="[A] Approve"]; g -> b [label="Abort"]; a -> exit; b -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("duplicate-accelerator", r#"start -> g; g -> a [label="[A] Approve"]; g -> b [label="[A] Abort"]; a -> exit; b -> exit"#), @"nothing");
    }
}
