use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use fabro_types::value_at;
use serde_json::{Map, Value};

/// Where a condition finds the values of its keys.
pub trait Lookup {
    /// The value of one flat key, taken literally: dots in it mean nothing. `outcome` and
    /// `preferred_label` are looked up like any other key. `None` when there is no such key.
    fn get(&self, key: &str) -> Option<Cow<'_, Value>>;
}

impl Lookup for BTreeMap<String, Value> {
    fn get(&self, key: &str) -> Option<Cow<'_, Value>> {
        BTreeMap::get(self, key).map(Cow::Borrowed)
    }
}

impl Lookup for BTreeMap<String, Arc<Value>> {
    fn get(&self, key: &str) -> Option<Cow<'_, Value>> {
        BTreeMap::get(self, key).map(|value| Cow::Borrowed(&**value))
    }
}

impl Lookup for Map<String, Value> {
    fn get(&self, key: &str) -> Option<Cow<'_, Value>> {
        Map::get(self, key).map(Cow::Borrowed)
    }
}

/// The keys of an object; any other value has none.
impl Lookup for Value {
    fn get(&self, key: &str) -> Option<Cow<'_, Value>> {
        Value::get(self, key).map(Cow::Borrowed)
    }
}

/// The prefix that says "from the context" and may be left out.
pub(crate) const PREFIX: &str = "context.";

/// The value of a key of a clause.
pub(crate) fn value_of<'a>(lookup: &'a dyn Lookup, key: &str) -> Option<Cow<'a, Value>> {
    let Ok(value) = find::<Infallible>(key, |flat| Ok(lookup.get(flat)));
    value
}

/// Finds the value of a key as a condition writes it, given how to get the value of a flat key:
/// first of the key itself, then without `context.`, then of its longest dotted prefix that leads to
/// a value in a JSON object or array. For a [`Lookup`] whose values have to be read beforehand.
///
/// # Errors
/// The first error of `get`.
pub fn find<'a, E>(
    key: &str,
    get: impl Fn(&str) -> Result<Option<Cow<'a, Value>>, E>,
) -> Result<Option<Cow<'a, Value>>, E> {
    let short = key.strip_prefix(PREFIX);
    for flat in [Some(key), short].into_iter().flatten() {
        if let Some(value) = get(flat)? {
            return Ok(Some(value));
        }
    }
    for dotted in [short, Some(key)].into_iter().flatten() {
        for (dot, _) in dotted.rmatch_indices('.') {
            let path = &dotted[dot + 1..];
            let found = match get(&dotted[..dot])? {
                Some(Cow::Borrowed(value)) => value_at(value, path).map(Cow::Borrowed),
                Some(Cow::Owned(value)) => value_at(&value, path).cloned().map(Cow::Owned),
                None => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}
