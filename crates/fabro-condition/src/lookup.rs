use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_types::value_at;
use serde_json::Value;

use crate::LookupError;

/// Where a condition finds the values of its keys.
pub trait Lookup {
    /// The value of one flat key, taken literally: dots in it mean nothing. `outcome` and
    /// `preferred_label` are asked for like any other key. `None` when there is no such key.
    fn get(&self, key: &str) -> Result<Option<Cow<'_, Value>>, LookupError>;

    /// What a value that was found inside another, at `path`, stands for when it is a reference to
    /// one kept elsewhere; `None` when it stands for itself, as all do unless this is implemented.
    fn referred(&self, _path: &str, _value: &Value) -> Result<Option<Value>, LookupError> {
        Ok(None)
    }
}

impl Lookup for BTreeMap<String, Value> {
    fn get(&self, key: &str) -> Result<Option<Cow<'_, Value>>, LookupError> {
        Ok(BTreeMap::get(self, key).map(Cow::Borrowed))
    }
}

impl Lookup for BTreeMap<String, Arc<Value>> {
    fn get(&self, key: &str) -> Result<Option<Cow<'_, Value>>, LookupError> {
        Ok(BTreeMap::get(self, key).map(|value| Cow::Borrowed(&**value)))
    }
}

/// The prefix that says "from the context" and may be left out.
pub(crate) const PREFIX: &str = "context.";

/// The value that a key, as written in a condition, stands for.
///
/// The literal key comes first, then the key without `context.`; only when neither is there, the
/// longest of its dotted prefixes that leads to a value in a JSON object or array. A reference at
/// the end of such a path is read.
pub(crate) fn resolve<'a>(
    lookup: &'a dyn Lookup,
    key: &str,
) -> Result<Option<Cow<'a, Value>>, LookupError> {
    let short = key.strip_prefix(PREFIX);
    for flat in [Some(key), short].into_iter().flatten() {
        if let Some(value) = lookup.get(flat)? {
            return Ok(Some(value));
        }
    }
    for dotted in [short, Some(key)].into_iter().flatten() {
        if let Some(value) = resolve_path(lookup, dotted)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn resolve_path<'a>(
    lookup: &'a dyn Lookup,
    key: &str,
) -> Result<Option<Cow<'a, Value>>, LookupError> {
    for (dot, _) in key.rmatch_indices('.') {
        let (head, path) = (&key[..dot], &key[dot + 1..]);
        let found = match lookup.get(head)? {
            Some(Cow::Borrowed(value)) => value_at(value, path).map(Cow::Borrowed),
            Some(Cow::Owned(value)) => value_at(&value, path).cloned().map(Cow::Owned),
            None => None,
        };
        if let Some(value) = found {
            let referred = lookup.referred(key, &value)?;
            return Ok(Some(referred.map_or(value, Cow::Owned)));
        }
    }
    Ok(None)
}
