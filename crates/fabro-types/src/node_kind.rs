use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Which handler runs a node.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum NodeKind {
    /// Where a run begins.
    Start,
    /// Where a run ends.
    Exit,
    /// A model with tools.
    #[strum(to_string = "agent", serialize = "codergen")]
    Agent,
    /// One question to a model, without tools.
    Prompt,
    /// A script.
    #[strum(to_string = "command", serialize = "tool")]
    Command,
    /// A question to a person.
    #[strum(to_string = "human", serialize = "wait.human")]
    Human,
    /// A choice between edges; runs nothing.
    Conditional,
    /// The beginning of a fan-out.
    Parallel,
    /// Where the branches of a fan-out join.
    #[serde(rename = "parallel.fan_in")]
    #[strum(serialize = "parallel.fan_in")]
    FanIn,
    /// A pause.
    Wait,
    /// A workflow inside this one.
    #[serde(rename = "stack.manager_loop")]
    #[strum(serialize = "stack.manager_loop")]
    ManagerLoop,
}

impl NodeKind {
    /// All kinds, in the order the reference lists them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The value of `type` that stands for it.
    pub fn as_str(self) -> &'static str {
        self.into()
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
        name.parse().ok()
    }

    /// Reads a shape; `None` for shapes that stand for no handler.
    pub fn from_shape(shape: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.shape() == shape)
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
