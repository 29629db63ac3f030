//! Chat Completions: `OpenAI` and compatible servers.

mod calls;
pub(super) mod events;
pub(super) mod request;
