//! Anthropic's Messages API.

pub(super) mod events;
pub(super) mod request;
