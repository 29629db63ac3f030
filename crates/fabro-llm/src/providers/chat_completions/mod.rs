//! Chat Completions: `OpenAI` and compatible servers.

mod calls;
mod details;
pub(super) mod events;
pub(super) mod request;
mod thought;
