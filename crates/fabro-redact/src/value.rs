//! Secrets in JSON.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::Redactor;

/// Iterates with a list of values to do, so that deep nesting does not exhaust the stack.
pub(crate) fn redact(redactor: &Redactor, value: &mut Value) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let number = number.to_string();
                if let Cow::Owned(redacted) = redactor.redact(&number) {
                    *value = Value::String(redacted);
                }
            }
            Value::String(text) => {
                if let Cow::Owned(redacted) = redactor.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => pending.extend(items),
            Value::Object(entries) => {
                if entries.keys().any(|key| matches!(redactor.redact(key), Cow::Owned(_))) {
                    *entries = redact_keys(redactor, std::mem::take(entries));
                }
                pending.extend(entries.values_mut());
            }
        }
    }
}

fn redact_keys(redactor: &Redactor, entries: Map<String, Value>) -> Map<String, Value> {
    // Unchanged keys have precedence over redacted ones.
    let mut redacted = Map::with_capacity(entries.len());
    let mut number = 1;
    let kept: BTreeSet<String> = entries.keys().cloned().collect();
    for (key, value) in entries {
        let mut new = redactor.redact(&key).into_owned();
        if new != key {
            let mark = new.clone();
            while redacted.contains_key(&new) || kept.contains(&new) {
                number += 1;
                new = format!("{mark}#{number}");
            }
        }
        redacted.insert(new, value);
    }
    redacted
}
