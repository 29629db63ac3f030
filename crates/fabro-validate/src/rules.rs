use fabro_types::Severity::{self, Error, Warning};

/// A rule that findings name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its stable name, such as `target-node`.
    pub name: &'static str,
    /// How bad a finding of it is.
    pub severity: Severity,
    /// What it says, one sentence without a full stop.
    pub summary: &'static str,
}

/// Every rule, those of the language itself first; each group by name.
pub fn rules() -> &'static [Rule] {
    RULES
}

const fn rule(name: &'static str, severity: Severity, summary: &'static str) -> Rule {
    Rule { name, severity, summary }
}

#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule("attribute-value", Error, "an attribute has a value of its type: a number, duration, boolean or one of some words"),
    rule("file-too-large", Error, "a workflow file has at most 16 MB"),
    rule("html-label", Error, "labels are texts, not HTML"),
    rule("missing-file", Error, "every file that an attribute names can be read"),
    rule("nesting-too-deep", Error, "subgraphs nest at most 128 deep"),
    rule("node-id", Error, "a node id has letters, digits and underscores, no digit first, at most 128 characters"),
    rule("not-a-digraph", Error, "a workflow is a `digraph`"),
    rule("port", Error, "edges lead to nodes, not to ports of them"),
    rule("second-graph", Error, "a file holds one graph"),
    rule("strict-graph", Error, "`strict` is not part of the language"),
    rule("syntax", Error, "the file is written in the workflow language"),
    rule("too-large", Error, "groups of nodes make at most 200,000 edges and classes"),
    rule("undirected-edge", Error, "edges have a direction: `->`, not `--`"),
    rule("unknown-type", Error, "`type` names a handler"),
    rule("condition-syntax", Error, "conditions parse, and their regular expressions compile"),
    rule("exit-node", Error, "there is an exit node"),
    rule("exit-outgoing", Error, "no edge leads out of an exit node"),
    rule("several-exits", Warning, "there is one exit node"),
    rule("start-incoming", Error, "no edge leads into the start node"),
    rule("start-node", Error, "there is exactly one start node"),
    rule("stylesheet-syntax", Error, "the model stylesheet parses"),
    rule("target-node", Error, "retry targets and default choices are nodes of the workflow"),
];
