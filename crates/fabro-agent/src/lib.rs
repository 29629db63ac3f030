//! An agent session: turns of a model and tools, durable, compacted, steered.

mod agents;
mod calls;
mod documents;
mod error;
mod journal;
mod ledger;
mod message;
mod prompt;
mod repeats;
mod seam;
mod session;
mod settings;
mod shorten;
mod skills;
mod steering;
mod transcript;
mod turn;

pub use documents::{DOCUMENT_BYTES, project_docs};
pub use error::SessionError;
pub use journal::{Journal, JournalError, MemoryJournal, Record};
pub use prompt::{SystemInfo, system_prompt};
pub use seam::{Asking, ToolSet};
pub use session::{Answer, Session};
pub use settings::{MayAsk, Parts, Price, Settings};
pub use skills::{SKILL_BYTES, Skill, SkillError, read_skills, use_skill};
pub use steering::{Steer, Steering};
pub use transcript::{Transcript, TranscriptError};
