//! The text that a value becomes.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::bounds::too_large;
use crate::limited::Limited;

/// What went through `raw`. An object of its own and not a string marked safe: filters such as
/// `tojson` mark their results safe too, and those are to be quoted.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) String);

impl Object for Raw {
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The value went through `raw` last.
pub(crate) fn is_raw(value: &Value) -> bool {
    value.downcast_object_ref::<Raw>().is_some()
}

/// The text of a value: nothing for null, compact JSON for lists and maps.
pub(crate) fn text_of(value: &Value) -> Result<String, Error> {
    if let Some(raw) = value.downcast_object_ref::<Raw>() {
        return Ok(raw.0.clone());
    }
    match value.kind() {
        ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
        ValueKind::None => Ok(String::new()),
        // As JSON writes it; the engine writes `True`.
        ValueKind::Bool => Ok(value.is_true().to_string()),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let mut out = Limited::default();
            serde_json::to_writer(&mut out, value).map_err(|error| {
                if error.is_io() {
                    return too_large();
                }
                Error::new(ErrorKind::BadSerialization, error.to_string())
            })?;
            Ok(out.into_text())
        }
        ValueKind::Invalid => Err(Error::new(ErrorKind::InvalidOperation, value.to_string())),
        _ => Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    }
}
