use fabro_types::Severity::{self, Error, Warning};

/// A rule that findings name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its stable name, such as `target-node`.
    pub name: &'static str,
    /// How bad a finding of it is, at worst.
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
    rule("duplicate-node", Error, "statements of a node agree on its script and prompt"),
    rule("file-too-large", Error, "a workflow file has at most 16 MB"),
    rule("html-label", Error, "labels are plain text, not HTML"),
    rule("import", Error, "imported files have one way in and one way out, and do not go round"),
    rule("missing-file", Error, "every file that an attribute names can be read"),
    rule("nesting-too-deep", Error, "subgraphs nest at most 128 deep"),
    rule("node-id", Error, "a node id has letters, digits and underscores, no digit first, at most 128 characters"),
    rule("not-a-digraph", Error, "a workflow is a `digraph`"),
    rule("port", Warning, "edges lead to nodes, not to ports of them"),
    rule("second-graph", Error, "a file holds one graph"),
    rule("strict-graph", Warning, "`strict` means nothing: a workflow may have several edges between two nodes"),
    rule("syntax", Error, "the file is written in the workflow language"),
    rule("late-default", Warning, "defaults stand before the first mention of the nodes they are for"),
    rule("subgraph-attribute", Warning, "attributes in a subgraph are defaults: node [..] or edge [..]; only its label is its own"),
    rule("too-large", Error, "groups of nodes make at most 200,000 edges and classes"),
    rule("undirected-edge", Error, "edges have a direction: `->`, not `--`"),
    rule("unknown-type", Warning, "`type` names a handler; else the shape decides"),
    rule("absolute-cd", Warning, "a script does not begin by leaving the working directory of the run for an absolute path"),
    rule("all-conditional", Warning, "a node has an edge for every case: one without a condition, or conditions that cover all"),
    rule("chain-attribute", Warning, "attributes of a chain of edges make sense at its first edge too"),
    rule("child-workflow", Error, "sub-workflows are valid themselves, nest at most 16 deep, and each is named once"),
    rule("condition-operator", Warning, "conditions are written with the operators and quotes of the language"),
    rule("condition-syntax", Error, "conditions parse, and their regular expressions compile"),
    rule("constant-template", Error, "conditions, models and commands of ACP agents read inputs and the goal, not the context"),
    rule("dead-end", Warning, "every node leads on, but for the exit and ends that a condition leads to"),
    rule("default-choice", Warning, "the default choice of a human gate is one of its options"),
    rule("duplicate-accelerator", Error, "the options of a human gate have different keys"),
    rule("edge-target", Error, "edges lead to nodes that are there"),
    rule("endless-loop", Warning, "every loop can end: an edge out of it can be taken, or it has a limit"),
    rule("exit-node", Error, "there is an exit node"),
    rule("exit-outgoing", Error, "no edge leads out of an exit node"),
    rule("failure-to-exit", Warning, "a failure does not go directly to an exit without a status"),
    rule("fan-out-join", Warning, "the branches of a fan-out come together"),
    rule("file-outside", Warning, "the files of a workflow are in its folder"),
    rule("for-each", Error, "a list is on a parallel node with one path to a join, and its elements have a name that is free"),
    rule("freeform-edges", Error, "a human gate has at most one freeform edge"),
    rule("goal-gate-bypass", Warning, "every path to an exit without a status goes through the goal gates"),
    rule("goal-gate-retry", Warning, "the failure of a goal gate is handled by an attribute, a condition or a person"),
    rule("isolation", Error, "branches with git worktrees of their own join at a fan-in, which takes their files"),
    rule("keyword-node-id", Warning, "a node id is not a keyword of DOT in quotes"),
    rule("label-condition", Warning, "a condition is not the label of its edge"),
    rule("label-template", Warning, "only labels of gates and of their edges read the context; other labels read inputs and the goal"),
    rule("missing-attribute", Warning, "a node has the attribute that its handler works on"),
    rule("missing-prompt", Warning, "a node that asks a model has a prompt"),
    rule("missing-workflow", Error, "a sub-workflow node names its workflow"),
    rule("misspelled-attribute", Warning, "attributes that look like one of ours are written like it, and stand where it may"),
    rule("path-as-prompt", Warning, "a prompt that names a file begins with `@`"),
    rule("no-path-to-exit", Error, "a path leads from the start to an exit"),
    rule("output-schema", Error, "an output schema is `routing` or a JSON Schema that refers to nothing outside of itself"),
    rule("quorum", Warning, "a quorum goes with join_policy=quorum, and is not above the number of branches"),
    rule("random-with-conditions", Error, "a node with selection=random has no conditions on its edges"),
    rule("schema-with-acp", Error, "a node with backend=acp has no output schema"),
    rule("script-and-prompt", Error, "a node has a script or a prompt, not both"),
    rule("script-language", Warning, "a Python script has `language=python`"),
    rule("script-value", Error, "values stand in a script where no shell and no interpreter runs them as code"),
    rule("several-exits", Warning, "there is one exit node without a status"),
    rule("start-incoming", Error, "no edge leads into the start node"),
    rule("start-node", Error, "there is exactly one start node"),
    rule("status-label", Warning, "edges out of stages that set no label are chosen by conditions, not by labels such as `success`"),
    rule("stdin-template", Warning, "`stdin_source` names a context key, and is not a template"),
    rule("stylesheet-syntax", Error, "the model stylesheet parses"),
    rule("target-node", Error, "retry targets are nodes of the workflow, default choices options of their gate"),
    rule("template-block", Warning, "blocks such as `{% if … %}` stand in prompts and stylesheets, where they are expanded"),
    rule("template-root", Warning, "templates begin with `goal`, `inputs` or `context`"),
    rule("template-syntax", Error, "templates in goal, prompts and scripts parse, and a goal reads inputs only"),
    rule("thread-without-full", Warning, "a thread is named where fidelity=full continues it"),
    rule("unbounded-cost", Warning, "a loop that asks a model has a visit limit, or the workflow has a cost limit"),
    rule("undefined-input", Error, "every input that a template reads is given, unless it has a default"),
    rule("unhandled-failure", Warning, "a condition, an attribute or a goal gate handles the failure of a command or sub-workflow"),
    rule("unknown-outcome", Warning, "an outcome that a condition asks for is a status, or may be a word of a model"),
    rule("unknown-property", Warning, "a model stylesheet sets properties that there are"),
    rule("unknown-shape", Warning, "a shape stands for a handler"),
    rule("unknown-tool", Warning, "names of tools that look like one of ours are written like it, and no agent names only unknown ones"),
    rule("unread-element", Warning, "a prompt or script on the path of a list reads the element"),
    rule("unread-input", Warning, "a sub-workflow reads the inputs that its node gives it"),
    rule("unreachable-node", Warning, "every node can be reached from the start"),
    rule("unused-style", Warning, "ids and classes in the model stylesheet are those of nodes"),
    rule("unwritten-key", Warning, "a context key that a condition or template reads can have been written by then, for a template at the first visit too"),
    rule("without-effect", Warning, "attributes about prompts, answers and tools of a model stand on nodes that ask one, scripts on commands"),
];
