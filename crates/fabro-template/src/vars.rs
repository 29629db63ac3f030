use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_types::value_at;
use serde_json::Value;

/// The values that templates read. They are asked for one by one, when they are needed.
pub trait Vars: Send + Sync {
    /// The goal of the run.
    fn goal(&self) -> &str;

    /// An input by its name; dots in it mean nothing. `None` when there is no such input.
    fn input(&self, name: &str) -> Option<Value>;

    /// A context value by its flat key; dots in it mean nothing. `None` when there is no such key;
    /// an error, in words, when it is there but cannot be read.
    fn context(&self, key: &str) -> Result<Option<Arc<Value>>, String>;

    /// The file that holds a context value, for a message that offers it instead of the value.
    fn path(&self, key: &str) -> Option<String> {
        let _ = key;
        None
    }
}

/// Values in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// The goal of the run.
    pub goal: String,
    /// Inputs by name.
    pub inputs: BTreeMap<String, Value>,
    /// Context values by flat key.
    pub context: BTreeMap<String, Arc<Value>>,
}

impl Vars for Values {
    fn goal(&self) -> &str {
        &self.goal
    }

    fn input(&self, name: &str) -> Option<Value> {
        self.inputs.get(name).cloned()
    }

    fn context(&self, key: &str) -> Result<Option<Arc<Value>>, String> {
        Ok(self.context.get(key).cloned())
    }
}

/// The value of a dotted key: the flat key, else the longest of its prefixes that leads to a value
/// in a JSON object or array.
pub(crate) fn resolve<E>(
    key: &str,
    get: impl Fn(&str) -> Result<Option<Arc<Value>>, E>,
) -> Result<Option<Arc<Value>>, E> {
    if let Some(value) = get(key)? {
        return Ok(Some(value));
    }
    for (dot, _) in key.rmatch_indices('.') {
        let found = get(&key[..dot])?;
        if let Some(value) = found.as_deref().and_then(|value| value_at(value, &key[dot + 1..])) {
            return Ok(Some(Arc::new(value.clone())));
        }
    }
    Ok(None)
}
