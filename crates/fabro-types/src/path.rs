use serde_json::Value;

/// The value at a dotted path inside a JSON value: names of object fields, indices of arrays from
/// 0. A field whose name has dots in it, at any depth, is found before a path through its parts. `None` when the
/// path leads nowhere. Rules: `docs/workflow-language.md`, "Context".
///
/// ```
/// use serde_json::json;
///
/// let audit = json!({"scores": [3, 91], "a.b": 1});
/// assert_eq!(fabro_types::value_at(&audit, "scores.1"), Some(&json!(91)));
/// assert_eq!(fabro_types::value_at(&audit, "a.b"), Some(&json!(1)));
/// assert_eq!(fabro_types::value_at(&audit, "scores.last"), None);
/// assert_eq!(fabro_types::value_at(&json!({"output.audit": {"score": 91}}), "output.audit.score"), Some(&json!(91)));
/// ```
pub fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    // Each value inside is at the end of one way only, so that none is looked at twice.
    child(value, path).or_else(|| {
        path.rmatch_indices('.')
            .find_map(|(dot, _)| value_at(child(value, &path[..dot])?, &path[dot + 1..]))
    })
}

fn child<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}
