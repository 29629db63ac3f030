//! JSON Schemas of answers in the form that providers accept.

use serde_json::{Map, Value, json};

/// The deepest nesting; schemas that are nested deeper are not sent.
const DEPTH: u32 = 64;

/// Keywords that Anthropic refuses and that are left out: the answer is validated against the whole
/// schema anyway.
const REFUSED: [&str; 13] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// Keywords that are sent unchanged.
const KEPT: [&str; 9] =
    ["type", "title", "description", "default", "examples", "enum", "const", "required", "format"];

/// How many properties that are not required Anthropic accepts in a schema.
const MOST_OPTIONAL: usize = 24;

/// The schema for Anthropic, where all objects have to be closed; `None` when that would change what
/// the schema means, or it has too many properties that are not required.
pub(super) fn for_anthropic(schema: &Value) -> Option<Value> {
    if schema["type"] != "object" {
        return None;
    }
    closed(schema, DEPTH).filter(|closed| optional(closed) <= MOST_OPTIONAL)
}

/// The number of properties that are not required, in all objects of a schema.
fn optional(schema: &Value) -> usize {
    let is_required = |name: &str| {
        schema["required"].as_array().into_iter().flatten().any(|required| required == name)
    };
    let properties = || schema["properties"].as_object().into_iter().flatten();
    let own = properties().filter(|(name, _)| !is_required(name)).count();
    let lists = ["anyOf", "allOf"].map(|key| schema[key].as_array().into_iter().flatten());
    let parts = properties()
        .map(|(_, part)| part)
        .chain(schema.get("items"))
        .chain(lists.into_iter().flatten());
    own + parts.map(optional).sum::<usize>()
}

fn closed(schema: &Value, depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut out = Map::new();
    for (key, value) in schema.as_object()? {
        let value = match key.as_str() {
            "$schema" | "$id" | "$comment" => continue,
            key if REFUSED.contains(&key) => continue,
            key if KEPT.contains(&key) => value.clone(),
            "properties" => {
                let properties = value.as_object()?.iter();
                let closed = properties.map(|(name, it)| Some((name.clone(), closed(it, depth)?)));
                Value::Object(closed.collect::<Option<_>>()?)
            }
            "items" => closed(value, depth)?,
            "anyOf" | "allOf" => {
                value.as_array()?.iter().map(|it| closed(it, depth)).collect::<Option<_>>()?
            }
            "additionalProperties" if *value == false => value.clone(),
            // Anthropic does not know it, and leaving it out would change the meaning.
            _ => return None,
        };
        out.insert(key.clone(), value);
    }
    if is_object(&out) {
        // An object with any fields would become an empty one.
        out.get("properties")?;
        out.insert("additionalProperties".to_owned(), false.into());
    }
    Some(out.into())
}

fn is_object(schema: &Map<String, Value>) -> bool {
    let object = |kind: &Value| kind == "object";
    schema.contains_key("properties")
        || schema.get("type").is_some_and(|kind| {
            object(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(object))
        })
}

/// The schema for Chat Completions and Responses. `strict` makes the provider enforce it, but is
/// refused for schemas that leave anything open.
pub(super) fn for_openai(schema: &Value) -> Value {
    let strict = schema["type"] == "object" && is_strict(schema, DEPTH);
    json!({"name": "answer", "strict": strict, "schema": schema})
}

fn is_strict(schema: &Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(map) = schema.as_object() else { return false };
    let all = |value: &Value| match value {
        Value::Object(map) => map.values().all(|it| is_strict(it, depth)),
        Value::Array(list) => list.iter().all(|it| is_strict(it, depth)),
        _ => false,
    };
    let known = map.iter().all(|(key, value)| match key.as_str() {
        "type" | "description" | "enum" | "const" | "required" | "additionalProperties" => true,
        "properties" => all(value),
        "items" => is_strict(value, depth),
        // Not allowed at the root.
        "anyOf" => depth + 1 < DEPTH && all(value),
        _ => false,
    });
    known && (!is_object(map) || is_closed(map))
}

/// Every property is required, and no other is allowed.
fn is_closed(map: &Map<String, Value>) -> bool {
    let properties = map.get("properties").and_then(Value::as_object);
    let required = map.get("required").and_then(Value::as_array);
    let (Some(properties), Some(required)) = (properties, required) else { return false };
    let all = properties.keys().all(|name| required.iter().any(|it| it == name.as_str()));
    all && map.get("additionalProperties") == Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &Value, anthropic: &Value, strict: bool) {
        assert_eq!(for_anthropic(schema).unwrap_or_default(), *anthropic, "{schema}");
        assert_eq!(is_strict(schema, DEPTH), strict, "{schema}");
    }

    #[test]
    fn schemas_keep_their_meaning() {
        let closed = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "required": ["a"], "additionalProperties": false});
        check(&closed, &closed, true);
        check(
            &json!({"$schema": "x", "type": "object", "properties": {
                "a": {"type": "integer", "minimum": 1},
                "b": {"type": "array", "maxItems": 2, "items": closed},
            }}),
            &json!({"type": "object", "properties": {
                "a": {"type": "integer"},
                "b": {"type": "array", "items": closed},
            }, "additionalProperties": false}),
            false,
        );
        for open in [
            json!({"type": "object"}),
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"type": "object", "properties": {"a": {"type": "object"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/x"}}}),
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            json!(true),
        ] {
            let strict = open["type"] == "array";
            check(&open, &Value::Null, strict);
        }
    }

    #[test]
    fn anthropic_takes_24_properties_that_are_not_required() {
        let schema = |count: usize| {
            let names = (0..count).map(|number| (format!("p{number}"), json!({"type": "string"})));
            let inner: Map<_, _> = names.collect();
            json!({"type": "object", "required": ["list"], "properties": {"list": {"type": "array",
                "items": {"type": "object", "properties": inner}}}})
        };
        assert!(for_anthropic(&schema(24)).is_some());
        assert!(for_anthropic(&schema(25)).is_none());
    }

    #[test]
    fn deep_schemas_are_not_sent() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "object", "properties": {"a": schema}, "required": ["a"],
                "additionalProperties": false});
        }
        check(&schema, &Value::Null, false);
    }
}
