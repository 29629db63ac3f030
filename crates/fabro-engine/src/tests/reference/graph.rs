//! Small workflows for the reference model, and their source as workflow files.

use std::fmt::Write as _;

/// The `on_failure` policy of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    Stop,
    Exit,
    Route,
    Succeed,
    Continue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Start,
    /// Runs, and ends as its replies say.
    Stage,
    /// Passes on the outcome of the previous stage.
    Conditional,
    /// Runs, and succeeds.
    Wait,
    /// Ends the run, with this status if set.
    Exit(Option<ExitStatus>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitStatus {
    Succeeded,
    Failed,
}

/// A condition of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Succeeded,
    Failed,
    NotFailed,
    /// `failure_class=deterministic`
    Deterministic,
    /// `failure_class=transient_infra`
    Transient,
    /// The value of a context key that stages set.
    Flag(bool),
    /// `internal.node_visit_count < n`
    VisitsBelow(u32),
}

impl Condition {
    /// Whether it reads the result of a stage: its outcome or its failure.
    pub(super) fn reads_result(self) -> bool {
        !matches!(self, Self::Flag(_) | Self::VisitsBelow(_))
    }

    /// Whether it can hold after a failure but not after a success.
    pub(super) fn is_for_failures(self) -> bool {
        matches!(self, Self::Failed | Self::Deterministic | Self::Transient)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) condition: Option<Condition>,
    pub(super) label: Option<&'static str>,
    pub(super) weight: i32,
    pub(super) restart: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Targets {
    pub(super) first: Option<usize>,
    pub(super) fallback: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Deterministic,
    Transient,
}

/// The result of one attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    /// The class of a failure, and whether the stage stated it.
    pub(super) failure: Option<(Class, bool)>,
    pub(super) label: Option<&'static str>,
    pub(super) suggested: Vec<usize>,
    pub(super) flag: Option<bool>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) goal_gate: bool,
    pub(super) allow_partial: bool,
    pub(super) auto_status: bool,
    pub(super) targets: Targets,
    pub(super) max_visits: Option<u32>,
    pub(super) max_retries: Option<u32>,
    pub(super) edges: Vec<Edge>,
    /// In order; the last one repeats. Without replies the stage succeeds.
    pub(super) replies: Vec<Reply>,
}

impl Node {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            on_failure: None,
            goal_gate: false,
            allow_partial: false,
            auto_status: false,
            targets: Targets::default(),
            max_visits: None,
            max_retries: None,
            edges: Vec::new(),
            replies: Vec::new(),
        }
    }
}

/// A workflow. The first node is the start.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) targets: Targets,
    pub(super) max_node_visits: u32,
}

impl Graph {
    pub(super) fn id(&self, node: usize) -> String {
        match self.nodes[node].kind {
            Kind::Start => "start".to_owned(),
            _ => format!("n{node}"),
        }
    }

    /// The start and the nodes that run something.
    pub(super) fn nodes_that_run(&self) -> impl Iterator<Item = usize> {
        let runs = |kind: Kind| matches!(kind, Kind::Start | Kind::Stage | Kind::Wait);
        (0..self.nodes.len()).filter(move |node| runs(self.nodes[*node].kind))
    }

    /// The source of the workflow file.
    pub(super) fn source(&self) -> String {
        let mut text = format!("digraph {{ max_node_visits={}", self.max_node_visits);
        if let Some(policy) = self.on_failure {
            let _ = write!(text, "; on_failure={}", policy_word(policy));
        }
        self.write_targets(&mut text, self.targets, "; ");
        text.push('\n');
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = write!(text, "  {} [{}", self.id(index), attributes(node));
            self.write_targets(&mut text, node.targets, " ");
            text.push_str("]\n");
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for edge in &node.edges {
                let _ = write!(text, "  {} -> {} [", self.id(index), self.id(edge.to));
                if let Some(condition) = edge.condition {
                    let _ = write!(text, "condition=\"{}\" ", condition_text(condition));
                }
                if let Some(label) = edge.label {
                    let _ = write!(text, "label={label} ");
                }
                let _ = writeln!(text, "weight={} loop_restart={}]", edge.weight, edge.restart);
            }
        }
        text.push('}');
        text
    }

    fn write_targets(&self, text: &mut String, targets: Targets, before: &str) {
        if let Some(node) = targets.first {
            let _ = write!(text, "{before}retry_target={}", self.id(node));
        }
        if let Some(node) = targets.fallback {
            let _ = write!(text, "{before}fallback_retry_target={}", self.id(node));
        }
    }
}

fn attributes(node: &Node) -> String {
    let mut text = match node.kind {
        Kind::Start => "shape=Mdiamond".to_owned(),
        Kind::Stage => "shape=parallelogram script=true".to_owned(),
        Kind::Conditional => "shape=diamond".to_owned(),
        Kind::Wait => "shape=insulator duration=1s".to_owned(),
        Kind::Exit(None) => "shape=Msquare".to_owned(),
        Kind::Exit(Some(ExitStatus::Succeeded)) => "shape=Msquare status=succeeded".to_owned(),
        Kind::Exit(Some(ExitStatus::Failed)) => {
            "shape=Msquare status=failed reason=\"said so\"".to_owned()
        }
    };
    if let Some(policy) = node.on_failure {
        let _ = write!(text, " on_failure={}", policy_word(policy));
    }
    let flags = [
        ("goal_gate", node.goal_gate),
        ("allow_partial", node.allow_partial),
        ("auto_status", node.auto_status),
    ];
    for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
        let _ = write!(text, " {name}=true");
    }
    for (name, value) in [("max_visits", node.max_visits), ("max_retries", node.max_retries)] {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
    text
}

fn policy_word(policy: OnFailure) -> &'static str {
    match policy {
        OnFailure::Stop => "stop",
        OnFailure::Exit => "exit",
        OnFailure::Route => "route",
        OnFailure::Succeed => "succeed",
        OnFailure::Continue => "continue",
    }
}

fn condition_text(condition: Condition) -> String {
    match condition {
        Condition::Succeeded => "outcome=succeeded".to_owned(),
        Condition::Failed => "outcome=failed".to_owned(),
        Condition::NotFailed => "outcome!=fail".to_owned(),
        Condition::Deterministic => "failure_class=deterministic".to_owned(),
        Condition::Transient => "context.failure_class=transient_infra".to_owned(),
        Condition::Flag(true) => "flag=true".to_owned(),
        Condition::Flag(false) => "context.flag!=true".to_owned(),
        Condition::VisitsBelow(limit) => format!("internal.node_visit_count < {limit}"),
    }
}
