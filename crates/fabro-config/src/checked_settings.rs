use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a file sets, checked.
pub(crate) struct CheckedSettings(Value);

impl CheckedSettings {
    /// Values that the schema admits.
    pub(crate) fn new(settings: Value) -> Self {
        Self(settings)
    }

    /// The value of a setting by its dotted name; `None` when the file does not set it.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        name.split('.').try_fold(&self.0, |table, part| table.get(part))
    }

    /// The value at a JSON pointer such as `/run/goal`; the default when the file does not set it.
    #[expect(clippy::expect_used, reason = "a value of another type is an error of the reader")]
    pub(crate) fn take<T: Default + DeserializeOwned>(&mut self, pointer: &str) -> T {
        let value = self.0.pointer_mut(pointer).map(Value::take);
        let value = value.map(serde_json::from_value);
        value.map_or_else(T::default, |it| it.expect("the schema admits what the types hold"))
    }
}
