use crate::checking::Checking;
use crate::findings::Findings;

/// Words of DOT. Without quotes `node [..]`, `edge [..]` and `graph [..]` set defaults.
const KEYWORDS: [&str; 6] = ["digraph", "edge", "graph", "node", "strict", "subgraph"];

/// Reports a node whose id is a keyword in quotes: a mention without the quotes is something else.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let is_keyword = |id: &str| KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(id));
    for node in checking.workflow.nodes().filter(|node| is_keyword(&node.id)) {
        let id = &node.id;
        let message =
            format!("the node id `{id}` is a keyword: `{id}` without quotes is not this node");
        findings.warning("keyword-node-id", node.span, message, "choose another id");
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn ids_are_not_keywords() {
        insta::assert_snapshot!(reported("keyword-node-id", r#"start -> "node" -> nodes -> exit; "node" [prompt=x]"#), @r#"
        1:22 warning: the node id `node` is a keyword: `node` without quotes is not this node
          at: "node"
          fix: choose another id
        "#);
        insta::assert_snapshot!(reported("keyword-node-id", "start -> context -> exit; node [prompt=x]"), @"nothing");
    }
}
