use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which handler runs a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Where a run begins.
    Start,
    /// Where a run ends.
    Exit,
    /// A model with tools.
    Agent,
    /// One question to a model, without tools.
    Prompt,
    /// A script.
    Command,
    /// A question to a person.
    Human,
    /// A choice between edges; runs nothing.
    Conditional,
    /// The beginning of a fan-out.
    Parallel,
    /// Where the branches of a fan-out come together.
    FanIn,
    /// A pause.
    Wait,
    /// A workflow inside this one.
    ManagerLoop,
}

impl NodeKind {
    /// All kinds, in the order the reference lists them.
    pub const ALL: [Self; 11] = [
        Self::Start,
        Self::Exit,
        Self::Agent,
        Self::Prompt,
        Self::Command,
        Self::Human,
        Self::Conditional,
        Self::Parallel,
        Self::FanIn,
        Self::Wait,
        Self::ManagerLoop,
    ];

    /// The value of `type` that stands for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Exit => "exit",
            Self::Agent => "agent",
            Self::Prompt => "prompt",
            Self::Command => "command",
            Self::Human => "human",
            Self::Conditional => "conditional",
            Self::Parallel => "parallel",
            Self::FanIn => "parallel.fan_in",
            Self::Wait => "wait",
            Self::ManagerLoop => "stack.manager_loop",
        }
    }

    /// The shape that stands for it.
    pub fn shape(self) -> &'static str {
        match self {
            Self::Start => "Mdiamond",
            Self::Exit => "Msquare",
            Self::Agent => "box",
            Self::Prompt => "tab",
            Self::Command => "parallelogram",
            Self::Human => "hexagon",
            Self::Conditional => "diamond",
            Self::Parallel => "component",
            Self::FanIn => "tripleoctagon",
            Self::Wait => "insulator",
            Self::ManagerLoop => "house",
        }
    }

    /// Reads a value of `type`, older names included.
    pub fn from_type(name: &str) -> Option<Self> {
        match name {
            "codergen" => Some(Self::Agent),
            "tool" => Some(Self::Command),
            "wait.human" => Some(Self::Human),
            name => Self::ALL.into_iter().find(|kind| kind.as_str() == name),
        }
    }

    /// Reads a shape; `None` for shapes that stand for no handler.
    pub fn from_shape(shape: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.shape() == shape)
    }

    /// The kind that an id alone stands for: `start`, `Start`, `exit`, `Exit`, `end`, `End`.
    pub fn from_id(id: &str) -> Option<Self> {
        match id {
            "start" | "Start" => Some(Self::Start),
            "exit" | "Exit" | "end" | "End" => Some(Self::Exit),
            _ => None,
        }
    }

    /// True for the kinds that ask a model: agent and prompt.
    pub fn is_llm(self) -> bool {
        matches!(self, Self::Agent | Self::Prompt)
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for NodeKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for NodeKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// The text is not the name of a handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of node")]
pub struct ParseNodeKindError(pub String);

impl FromStr for NodeKind {
    type Err = ParseNodeKindError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_type(name).ok_or_else(|| ParseNodeKindError(name.to_owned()))
    }
}
