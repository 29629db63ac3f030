//! Gemini: `streamGenerateContent`.

pub(super) mod events;
pub(super) mod request;

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
