//! Values as literals of Python.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

use crate::text::{is_raw, text_of};

/// A literal that Python reads as this value: `None`, `True`, numbers, strings in quotes, lists, dicts.
pub(crate) fn literal(value: &Value) -> Result<String, Error> {
    let json = match value.kind() {
        ValueKind::Undefined | ValueKind::Invalid => return text_of(value),
        _ if is_raw(value) => Json::String(text_of(value)?),
        _ => serde_json::to_value(value)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?,
    };
    let mut out = String::new();
    write(&json, &mut out);
    Ok(out)
}

/// The recursion ends: JSON that was read is at most 128 deep.
fn write(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("None"),
        Json::Bool(true) => out.push_str("True"),
        Json::Bool(false) => out.push_str("False"),
        Json::Number(number) => out.push_str(&number.to_string()),
        // The escapes of JSON are among those of Python, and stand for the same.
        Json::String(_) => out.push_str(&value.to_string()),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write(item, out);
            }
            out.push(']');
        }
        Json::Object(fields) => {
            out.push('{');
            for (at, (name, field)) in fields.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write(&Json::from(name.as_str()), out);
                out.push_str(": ");
                write(field, out);
            }
            out.push('}');
        }
    }
}
