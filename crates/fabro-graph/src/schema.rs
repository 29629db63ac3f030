//! The table of every attribute the engine knows: the only definition of where it is allowed,
//! its type, and its meaning. Attributes that are not here are kept unchanged.

use std::fmt;

use fabro_types::{NodeKind, REASONING_EFFORTS};

/// What an attribute belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Place {
    /// The graph.
    Graph,
    /// A node.
    Node,
    /// An edge.
    Edge,
}

impl Place {
    /// `graph`, `node` or `edge`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What values an attribute takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Any text.
    Text,
    /// A whole number, not below `min`.
    Int {
        /// The smallest one allowed.
        min: i64,
    },
    /// A number, not below 0.
    Float,
    /// Any number.
    Number,
    /// `true` or `false`.
    Bool,
    /// A duration, a number alone in seconds.
    Duration,
    /// One of these words.
    Words(&'static [&'static str]),
    /// The id of a node.
    Node,
}

impl fmt::Display for ValueType {
    /// A noun phrase: `a whole number from 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text"),
            Self::Int { min: i64::MIN } => f.write_str("a whole number"),
            Self::Int { min } => write!(f, "a whole number from {min}"),
            Self::Float => f.write_str("a number from 0"),
            Self::Number => f.write_str("a number"),
            Self::Bool => f.write_str("true or false"),
            Self::Duration => f.write_str("a duration"),
            Self::Words(words) => match words {
                [others @ .., last] if !others.is_empty() => {
                    write!(f, "{} or {last}", others.join(", "))
                }
                words => f.write_str(&words.concat()),
            },
            Self::Node => f.write_str("the id of a node"),
        }
    }
}

/// One attribute of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its current name.
    pub name: &'static str,
    /// What it may stand on.
    pub places: &'static [Place],
    /// What values it takes.
    pub value: ValueType,
    /// What holds when it is not there, as it would be written; empty when nothing does.
    pub default: &'static str,
    /// Whether `@path` stands for the text of a file.
    pub file: bool,
    /// What it means, one line of Markdown.
    pub doc: &'static str,
}

impl Attribute {
    /// Its older names.
    pub fn older_names(&self) -> impl Iterator<Item = &'static str> {
        let name = self.name;
        OLDER_NAMES.iter().filter(move |older| older.name == name).map(|older| older.older)
    }
}

/// The attribute of this current name that is allowed here.
pub fn find(place: Place, name: &str) -> Option<&'static Attribute> {
    let at = ATTRIBUTES.binary_search_by(|attribute| attribute.name.cmp(name)).ok()?;
    Some(&ATTRIBUTES[at]).filter(|attribute| attribute.places.contains(&place))
}

/// The attribute of this name, wherever it is allowed. The last part of a name such as `inputs.KEY` may
/// be any.
pub fn find_anywhere(name: &str) -> Option<&'static Attribute> {
    let is_it = |attribute: &&Attribute| match attribute.name.rsplit_once('.') {
        Some((table, key)) if key.chars().all(|c| c.is_ascii_uppercase()) => {
            let own = name.strip_prefix(table).and_then(|rest| rest.strip_prefix('.'));
            own.is_some_and(|own| !own.is_empty())
        }
        _ => attribute.name == name,
    };
    ATTRIBUTES.iter().find(is_it)
}

/// The name of the input that an attribute `inputs.NAME` gives a sub-workflow.
pub fn input_name(name: &str) -> Option<&str> {
    name.strip_prefix("inputs.").filter(|name| !name.is_empty())
}

/// The name of the variable that an attribute `env.NAME` gives the script of a command.
pub fn env_name(name: &str) -> Option<&str> {
    name.strip_prefix("env.").filter(|name| !name.is_empty())
}

/// Whether an attribute belongs to a family of ours whose names the workflow chooses: `inputs.KEY`
/// or `env.NAME`.
pub fn is_keyed(name: &str) -> bool {
    input_name(name).or_else(|| env_name(name)).is_some()
}

/// An older name, and the current name that means the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OlderName {
    /// The older name.
    pub older: &'static str,
    /// The current name.
    pub name: &'static str,
    /// What it may stand on.
    pub place: Place,
}

/// The older name written here, when `written` is one. `node_type` is one only when its value is
/// a handler type.
pub fn older_name(place: Place, written: &str, value: &str) -> Option<&'static OlderName> {
    OLDER_NAMES
        .iter()
        .find(|name| name.older == written && name.place == place)
        .filter(|name| name.name != "type" || NodeKind::from_type(value).is_some())
}

/// Whether an older name of anything is written so.
pub(crate) fn has_older_name(written: &str) -> bool {
    OLDER_NAMES.iter().any(|name| name.older == written)
}

/// Every older name.
pub const OLDER_NAMES: &[OlderName] = &[
    older("context_fidelity_default", "default_fidelity", Place::Graph),
    older("context_thread_default", "default_thread", Place::Graph),
    older("default_max_retry", "default_max_retries", Place::Graph),
    older("llm_model", "model", Place::Node),
    older("llm_prompt", "prompt", Place::Node),
    older("llm_provider", "provider", Place::Node),
    older("max_agent_turns", "max_turns", Place::Node),
    older("node_type", "type", Place::Node),
    older("tool_command", "script", Place::Node),
];

const fn older(older: &'static str, name: &'static str, place: Place) -> OlderName {
    OlderName { older, name, place }
}

const GRAPH: &[Place] = &[Place::Graph];
const NODE: &[Place] = &[Place::Node];
const EDGE: &[Place] = &[Place::Edge];
const GRAPH_NODE: &[Place] = &[Place::Graph, Place::Node];
const NODE_EDGE: &[Place] = &[Place::Node, Place::Edge];
const ALL: &[Place] = &[Place::Graph, Place::Node, Place::Edge];

const COUNT: ValueType = ValueType::Int { min: 0 };
const POSITIVE: ValueType = ValueType::Int { min: 1 };
const ANY_INT: ValueType = ValueType::Int { min: i64::MIN };
const TEXT: ValueType = ValueType::Text;
const FIDELITY: ValueType = ValueType::Words(&[
    "full",
    "compact",
    "summary:high",
    "summary:medium",
    "summary:low",
    "truncate",
]);

const fn row(
    name: &'static str,
    places: &'static [Place],
    value: ValueType,
    default: &'static str,
    doc: &'static str,
) -> Attribute {
    Attribute { name, places, value, default, file: false, doc }
}

const fn file(attribute: Attribute) -> Attribute {
    Attribute { file: true, ..attribute }
}

/// Every attribute, by name.
#[rustfmt::skip]
pub const ATTRIBUTES: &[Attribute] = &[
    row("acp.command", NODE, TEXT, "", "the command that starts the agent of `backend=acp`"),
    row("acp.config", NODE, TEXT, "", "settings handed to the agent of `backend=acp`"),
    row("allow_partial", NODE, ValueType::Bool, "false", "when attempts or time run out, the stage is `partially_succeeded` instead of failed"),
    row("as", NODE, TEXT, "item", "the context key of an element of `for_each`"),
    row("auto_status", NODE, ValueType::Bool, "false", "a failure that the stage did not state itself counts as succeeded"),
    row("backend", NODE, ValueType::Words(&["api", "cli", "acp"]), "api", "what runs the agent: a provider's API, a command line agent, or an ACP agent"),
    row("class", NODE, TEXT, "", "classes for the model stylesheet, separated by whitespace or commas"),
    row("condition", EDGE, TEXT, "", "when the edge may be taken; an empty one always holds"),
    row("context_tool", NODE, ValueType::Words(&["read", "write", "off"]), "read", "what the agent may do with the workflow's memory"),
    row("default_fidelity", GRAPH, FIDELITY, "compact", "how much of the earlier stages a prompt tells, where neither edge nor node says"),
    row("default_max_retries", GRAPH, COUNT, "0", "extra attempts of every node without its own, after transient failures only"),
    row("default_model", GRAPH, TEXT, "", "the model, where neither node, stylesheet nor command line says"),
    row("default_provider", GRAPH, TEXT, "", "the provider, where neither node, stylesheet nor command line says"),
    row("default_thread", GRAPH, TEXT, "", "the conversation that `fidelity=full` continues, where neither edge nor node says"),
    row("duration", NODE, ValueType::Duration, "", "how long a wait node waits"),
    row("env.NAME", NODE, TEXT, "", "an environment variable of a command's script; templates in it are filled in"),
    row("fallback_retry_target", GRAPH_NODE, ValueType::Node, "", "where to go when `retry_target` is absent or out of visits"),
    row("fallbacks", NODE, TEXT, "", "models or providers to try when the first one does not answer, separated by commas"),
    row("fidelity", NODE_EDGE, FIDELITY, "", "how much of the earlier stages the prompt tells"),
    row("for_each", NODE, TEXT, "", "a list, by its context key or as a template: the parallel node begins a branch for each element"),
    row("freeform", EDGE, ValueType::Bool, "false", "the edge takes an answer to a human gate that matches no option"),
    file(row("goal", GRAPH, TEXT, "", "what the run is for; prompts see it")),
    row("goal_gate", NODE, ValueType::Bool, "false", "a run may only end when this node, if visited, succeeded"),
    row("human.default_choice", NODE, TEXT, "", "the option, by its target, key or label, taken when a human gate runs out of time or is approved automatically"),
    row("human.description", EDGE, TEXT, "", "what a human gate says about the option of this edge"),
    row("human.preview", EDGE, TEXT, "", "what a human gate shows as the effect of the option of this edge"),
    row("import", NODE, TEXT, "", "the file whose body stands in the place of the node"),
    row("inputs.KEY", NODE, TEXT, "", "an input of a sub-workflow, which then has no others"),
    row("isolation", NODE, ValueType::Words(&["none", "worktree"]), "none", "whether the branches of a fan-out share the files: `worktree` gives each a git worktree of its own"),
    row("join_policy", NODE, ValueType::Words(&["wait_all", "all_success", "first_success", "quorum"]), "wait_all", "when the branches of a fan-out are done"),
    row("label", ALL, TEXT, "", "the name people see; on an edge also the option of a human gate"),
    row("language", NODE, ValueType::Words(&["shell", "python"]), "shell", "what runs the script"),
    row("loop_restart", EDGE, ValueType::Bool, "false", "the edge starts the workflow again at its target with a fresh context"),
    row("loop_restart_signature_limit", GRAPH, POSITIVE, "3", "how often one failure may come back before the run ends"),
    row("manager.max_cycles", NODE, POSITIVE, "1000", "how many poll intervals a sub-workflow may take"),
    row("manager.poll_interval", NODE, ValueType::Duration, "45s", "the unit of a sub-workflow's time limit"),
    row("manager.stop_condition", NODE, TEXT, "", "ends a sub-workflow when it holds after one of its stages"),
    row("max_cost", GRAPH, ValueType::Float, "", "US dollars after which the run pauses"),
    row("max_items", NODE, POSITIVE, "1000", "how many elements the list of `for_each` may have"),
    row("max_node_visits", GRAPH, COUNT, "0", "how often a node may be entered; 0 is without limit"),
    row("max_parallel", NODE, POSITIVE, "4", "how many branches of a fan-out run at once"),
    row("max_retries", NODE, COUNT, "", "extra attempts after a failure: 3 means 4 runs"),
    row("max_tokens", NODE, POSITIVE, "", "the length of one answer of the model"),
    row("max_tokens_total", GRAPH, POSITIVE, "", "tokens after which the run pauses"),
    row("max_turns", NODE, POSITIVE, "200", "how many turns an agent may take"),
    row("max_visits", NODE, COUNT, "", "how often the node may be entered; 0 is without limit"),
    row("memory", GRAPH_NODE, ValueType::Words(&["turns", "off"]), "off", "whether prompts carry the conversation between stages"),
    row("merge", NODE, ValueType::Words(&["best", "all"]), "best", "which files a fan-in takes of branches with `isolation=worktree`: those of the best one, or of all"),
    row("merge_stderr", NODE, ValueType::Bool, "false", "commands: whether `command.output` includes stderr"),
    row("model", NODE, TEXT, "", "the model to ask"),
    row("model_stylesheet", GRAPH, TEXT, "", "models for nodes by shape, class and id"),
    row("on_failure", GRAPH_NODE, ValueType::Words(&["stop", "exit", "route", "succeed", "continue"]), "route", "what follows a failure: `stop` ends the run when nothing handles it, `exit` takes no plain edges, `route` takes them, `succeed` turns it into a success when no edge handles it, `continue` ignores it"),
    row("on_unavailable", GRAPH_NODE, ValueType::Words(&["pause", "fail"]), "pause", "what follows when no model or agent can be asked: `pause` the run, or `fail` the stage"),
    row("output_retries", NODE, ANY_INT, "2", "repair turns when an answer does not match `output_schema`; below 0 counts as 0"),
    file(row("output_schema", NODE, TEXT, "", "what the answer, or the output of a command, must match: `routing`, an `@file` or an inline JSON Schema")),
    row("permissions", NODE, ValueType::Words(&["read-only", "read-write", "full"]), "read-write", "what the agent's tools may do"),
    row("project_memory", NODE, ValueType::Bool, "true", "whether the agent reads AGENTS.md and the like"),
    file(row("prompt", NODE, TEXT, "", "what the model is asked; the label when there is none")),
    row("provider", NODE, TEXT, "", "the provider of the model"),
    row("question_type", NODE, ValueType::Words(&["yes_no", "confirmation", "multiple_choice", "multi_select", "freeform"]), "multiple_choice", "how a human gate asks"),
    row("quorum", NODE, POSITIVE, "", "how many branches must succeed under `join_policy=quorum`; more than half when absent"),
    row("rag", NODE, TEXT, "", "files to search for passages that go into the prompt, as a pattern"),
    row("rankdir", GRAPH, TEXT, "", "the direction a drawing runs in: `TB`, `LR`, `BT` or `RL`"),
    row("reason", NODE, TEXT, "", "exits: why the run ends there; a template"),
    row("reasoning_effort", NODE, ValueType::Words(&REASONING_EFFORTS), "", "how hard the model thinks"),
    row("retry_policy", NODE, ValueType::Words(&["none", "standard", "aggressive", "linear", "patient"]), "", "attempts and delays after a failure"),
    row("retry_target", GRAPH_NODE, ValueType::Node, "", "where a failed stage or an unmet goal gate goes"),
    row("review_target", NODE, ValueType::Bool, "false", "whether a human gate shows the link in the context key `review_target`"),
    file(row("script", NODE, TEXT, "", "what a command node runs; a node with a script but without shape and type is a command")),
    row("selection", NODE, ValueType::Words(&["deterministic", "random"]), "deterministic", "how an edge is chosen among equals; `random` goes by weight"),
    row("shape", NODE, TEXT, "box", "the shape of a drawing, which also says what runs the node"),
    row("show", NODE, TEXT, "last", "what a human gate shows with its question: context keys, `last` for the last output or answer, or a text with templates"),
    row("speed", NODE, TEXT, "", "the provider's service class"),
    row("stack.child_dot_source", NODE, TEXT, "", "a sub-workflow, written inline"),
    file(row("stack.child_workflow", NODE, TEXT, "", "the file of a sub-workflow, with or without the `@`")),
    row("stall_timeout", GRAPH, ValueType::Duration, "1800s", "a model stage without any event for so long is canceled; 0 is never"),
    row("status", NODE, TEXT, "", "exits: the status of the run that ends there: `failed`, `succeeded` or `partially_succeeded`"),
    row("stdin_source", NODE, TEXT, "", "commands: the context key whose value the script reads from its standard input"),
    row("thread_id", NODE_EDGE, TEXT, "", "the conversation that `fidelity=full` continues"),
    row("timeout", NODE, ValueType::Duration, "", "how long the stage may take"),
    row("tools", NODE, TEXT, "", "the tools the agent may use, separated by commas; all when absent"),
    row("type", NODE, TEXT, "", "what runs the node, for any shape"),
    row("weight", EDGE, ValueType::Number, "0", "the higher of two possible edges is taken"),
];

/// The attributes of Graphviz, which drawings use; here so that they are not taken for
/// misspellings of known attributes. By name.
#[rustfmt::skip]
pub const GRAPHVIZ: &[&str] = &[
    "Damping", "K", "URL", "_background", "area", "arrowhead", "arrowsize", "arrowtail", "bb",
    "beautify", "bgcolor", "center", "charset", "class", "cluster", "clusterrank", "color",
    "colorscheme", "comment", "compound", "concentrate", "constraint", "decorate", "defaultdist",
    "dim", "dimen", "dir", "diredgeconstraints", "distortion", "dpi", "edgeURL", "edgehref",
    "edgetarget", "edgetooltip", "epsilon", "esep", "fillcolor", "fixedsize", "fontcolor",
    "fontname", "fontnames", "fontpath", "fontsize", "forcelabels", "gradientangle", "group",
    "headURL", "head_lp", "headclip", "headhref", "headlabel", "headport", "headtarget",
    "headtooltip", "height", "href", "id", "image", "imagepath", "imagepos", "imagescale",
    "inputscale", "label", "labelURL", "label_scheme", "labelangle", "labeldistance",
    "labelfloat", "labelfontcolor", "labelfontname", "labelfontsize", "labelhref", "labeljust",
    "labelloc", "labeltarget", "labeltooltip", "landscape", "layer", "layerlistsep", "layers",
    "layerselect", "layersep", "layout", "len", "levels", "levelsgap", "lhead", "lheight",
    "linelength", "lp", "ltail", "lwidth", "margin", "maxiter", "mclimit", "mindist", "minlen",
    "mode", "model", "newrank", "nodesep", "nojustify", "normalize", "notranslate", "nslimit",
    "nslimit1", "oneblock", "ordering", "orientation", "outputorder", "overlap",
    "overlap_scaling", "overlap_shrink", "pack", "packmode", "pad", "page", "pagedir", "pencolor",
    "penwidth", "peripheries", "pin", "pos", "quadtree", "quantum", "radius", "rank", "rankdir",
    "ranksep", "ratio", "rects", "regular", "remincross", "repulsiveforce", "resolution", "root",
    "rotate", "rotation", "samehead", "sametail", "samplepoints", "scale", "searchsize", "sep",
    "shape", "shapefile", "showboxes", "sides", "size", "skew", "smoothing", "sortv", "splines",
    "start", "style", "stylesheet", "tailURL", "tail_lp", "tailclip", "tailhref", "taillabel",
    "tailport", "tailtarget", "tailtooltip", "target", "tooltip", "truecolor", "vertices",
    "viewport", "voro_margin", "weight", "width", "xdotversion", "xlabel", "xlp", "z",
];
