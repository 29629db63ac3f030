//! Gemini: `streamGenerateContent`.

pub(super) mod events;
pub(super) mod request;

use crate::ToolSpec;

/// The id of a call that Gemini gave none. Records have ids of this form.
fn unsent_id(name: &str, number: usize) -> String {
    format!("call#{name}#{number}")
}

/// The name in an id that Gemini did not make.
pub(super) fn unsent_id_name(id: &str) -> Option<&str> {
    let (name, number) = id.strip_prefix("call#")?.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (!name.is_empty() && is_number).then_some(name)
}

/// Older models refuse a schema beside tools.
pub(super) fn takes_schema(model: &str, tools: &[ToolSpec]) -> bool {
    tools.is_empty() || checks_signatures(model)
}

/// Gemini checks the signatures of calls from version 3 on.
pub(super) fn checks_signatures(model: &str) -> bool {
    !["gemini-1", "gemini-2", "gemma"].iter().any(|name| model.contains(name))
}
