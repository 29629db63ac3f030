//! The Responses API of `OpenAI`.

pub(super) mod events;
pub(super) mod request;
