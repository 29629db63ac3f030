use serde_json::Value;

/// The value at a dotted path inside a JSON value: names of object fields, indices of arrays from
/// 0. A field whose name has dots in it is found before a path through its parts. `None` when the
/// path leads nowhere. Rules: `docs/workflow-language.md`, "Context".
///
/// ```
/// use serde_json::json;
///
/// let audit = json!({"scores": [3, 91], "a.b": 1});
/// assert_eq!(fabro_types::value_at(&audit, "scores.1"), Some(&json!(91)));
/// assert_eq!(fabro_types::value_at(&audit, "a.b"), Some(&json!(1)));
/// assert_eq!(fabro_types::value_at(&audit, "scores.last"), None);
/// ```
pub fn value_at<'a>(mut value: &'a Value, mut path: &str) -> Option<&'a Value> {
    loop {
        if let Some(found) = child(value, path) {
            return Some(found);
        }
        let (head, rest) = path.split_once('.')?;
        value = child(value, head)?;
        path = rest;
    }
}

fn child<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}
