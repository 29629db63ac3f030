//! The context of a run: a persistent key-value map with constant-time forks.
//!
//! Every stage of a run reads and writes one shared map from keys to JSON values. A branch of a
//! fan-out works on a [`Context::clone`], which costs the same for ten keys and for a hundred
//! thousand, and sees nothing of its siblings. Which keys an agent may write, and which ones the
//! engine keeps for itself, is decided in [`keys`]; the rules are in `docs/workflow-language.md`,
//! "Context".
//!
//! ```
//! use fabro_context::Context;
//! use serde_json::json;
//!
//! let mut main = Context::new();
//! main.set("tests_passed", json!(true));
//! let mut branch = main.clone();
//! branch.set("tests_passed", json!(false));
//! assert_eq!(main.get("tests_passed"), Some(&json!(true)));
//! assert_eq!(main.diff(&branch)[0].key, "tests_passed");
//! ```
//!
//! Limits: values are kept as they are given. Moving large ones out to blobs is the caller's part.

pub mod keys;

use std::sync::Arc;

use fabro_types::ContextPatch;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde::Serialize;
use serde_json::{Map, Value};

/// A map from keys to JSON values. Cloning takes constant time and isolates the copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    values: OrdMap<Arc<str>, Arc<Value>>,
}

/// A key whose value differs between two contexts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its value in the first context.
    pub before: Option<Arc<Value>>,
    /// Its value in the second.
    pub after: Option<Arc<Value>>,
}

impl Context {
    /// An empty context.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of exactly this key; dots in it have no meaning here.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).map(AsRef::as_ref)
    }

    /// The same, shared instead of borrowed.
    pub fn get_shared(&self, key: &str) -> Option<Arc<Value>> {
        self.values.get(key).cloned()
    }

    /// The text of a key that holds a string; empty when it holds anything else or nothing.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Writes one key.
    pub fn set(&mut self, key: impl Into<Arc<str>>, value: impl Into<Arc<Value>>) {
        self.values.insert(key.into(), value.into());
    }

    /// Removes one key.
    pub fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }

    /// Writes every key of the patch.
    pub fn apply(&mut self, patch: &ContextPatch) {
        for (key, value) in patch {
            self.values.insert(Arc::from(key.as_str()), Arc::clone(value));
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All keys and values, in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Arc<Value>)> {
        self.values.iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// What has to change for this context to become `other`, in key order. Costs as much as the
    /// two differ, not as much as they hold, when one was forked from the other.
    pub fn diff(&self, other: &Self) -> Vec<Change> {
        let change = |key: &Arc<str>, before: Option<&Arc<Value>>, after: Option<&Arc<Value>>| {
            Change { key: key.to_string(), before: before.cloned(), after: after.cloned() }
        };
        self.values
            .diff(&other.values)
            .filter_map(|item| match item {
                DiffItem::Add(key, value) => Some(change(key, None, Some(value))),
                DiffItem::Remove(key, value) => Some(change(key, Some(value), None)),
                DiffItem::Update { old: (key, old), new: (_, new) } => {
                    (old != new).then(|| change(key, Some(old), Some(new)))
                }
            })
            .collect()
    }

    /// One JSON object of all keys, in key order.
    pub fn to_json(&self) -> Value {
        let entries = self.iter().map(|(key, value)| (key.to_owned(), Value::clone(value)));
        Value::Object(entries.collect::<Map<_, _>>())
    }
}

impl FromIterator<(String, Arc<Value>)> for Context {
    fn from_iter<I: IntoIterator<Item = (String, Arc<Value>)>>(entries: I) -> Self {
        let values = entries.into_iter().map(|(key, value)| (Arc::from(key), value)).collect();
        Self { values }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fork_is_isolated_both_ways() {
        let mut main = Context::new();
        main.set("a", json!(1));
        let mut branch = main.clone();
        branch.set("a", json!(2));
        branch.set("b", json!([true]));
        main.set("c", json!("x"));
        insta::assert_snapshot!(main.to_json(), @r#"{"a":1,"c":"x"}"#);
        insta::assert_snapshot!(branch.to_json(), @r#"{"a":2,"b":[true]}"#);
        insta::assert_snapshot!(serde_json::to_string(&main.diff(&branch)).unwrap(), @r#"[{"key":"a","before":1,"after":2},{"key":"b","before":null,"after":[true]},{"key":"c","before":"x","after":null}]"#);
    }

    proptest! {
        #[test]
        fn applying_a_diff_gives_the_other(
            one in proptest::collection::btree_map("[a-c]{1,2}", 0..3_i32, 0..8),
            two in proptest::collection::btree_map("[a-c]{1,2}", 0..3_i32, 0..8),
        ) {
            let context = |map: &std::collections::BTreeMap<String, i32>| {
                map.iter().map(|(key, value)| (key.clone(), Arc::new(json!(value)))).collect::<Context>()
            };
            let mut before = context(&one);
            let after = context(&two);
            for change in before.diff(&after) {
                match change.after {
                    Some(value) => before.set(change.key, value),
                    None => before.remove(&change.key),
                }
            }
            prop_assert_eq!(before, after);
        }
    }
}
