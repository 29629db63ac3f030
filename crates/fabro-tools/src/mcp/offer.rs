//! A tool as its server lists it, made fit for models: one that is broken is left out alone.

use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::schema::Schema;

/// How deep references are replaced; deeper ones, as in a schema of trees, accept any value.
const MAX_DEPTH: usize = 8;

/// How many references are replaced in one schema.
const MAX_REFERENCES: usize = 500;

/// Reads a tool; the error is why it cannot be used.
pub(crate) fn read(listed: &Value) -> Result<Tool, String> {
    let name = listed["name"].as_str().filter(|name| !name.is_empty());
    let Some(name) = name else { return Err("it has no name".to_owned()) };
    let mut tool = json!({"name": name, "inputSchema": input_schema(&listed["inputSchema"])?});
    for key in ["title", "description"] {
        if listed[key].is_string() {
            tool[key] = listed[key].clone();
        }
    }
    for key in ["annotations", "outputSchema"] {
        if listed[key].is_object() {
            tool[key] = listed[key].clone();
        }
    }
    let read = |tool: &Value| serde_json::from_value::<Tool>(tool.clone());
    let hintless = || {
        let mut tool = tool.clone();
        tool.as_object_mut().and_then(|tool| tool.remove("annotations"));
        tool
    };
    read(&tool).or_else(|_| read(&hintless())).map_err(|error| error.to_string())
}

/// The schema of the arguments: an object, without references, as every provider takes it.
fn input_schema(listed: &Value) -> Result<Value, String> {
    let schema = match listed {
        // Servers leave out what is implied.
        Value::Null | Value::Bool(true) => Map::new(),
        Value::Object(schema) => schema.clone(),
        _ => return Err("its inputSchema is not an object".to_owned()),
    };
    let mut inlined = Inliner { root: &Value::Object(schema.clone()), left: MAX_REFERENCES }
        .object(&schema, 0)?;
    for key in ["$defs", "definitions"] {
        inlined.remove(key);
    }
    let is_object = match inlined.get("type") {
        None | Some(Value::Null) => true,
        Some(Value::Array(types)) => types.iter().any(|it| it == "object"),
        Some(other) => other == "object",
    };
    if !is_object {
        return Err("its inputSchema is not one of an object".to_owned());
    }
    inlined.insert("type".to_owned(), "object".into());
    if !inlined.get("properties").is_some_and(Value::is_object) {
        inlined.insert("properties".to_owned(), json!({}));
    }
    let schema = Value::Object(inlined);
    match Schema::compile(&schema) {
        Ok(_) => Ok(schema),
        Err(error) => Err(format!("its inputSchema is not valid: {error}")),
    }
}

/// Replaces references by what they refer to.
struct Inliner<'a> {
    root: &'a Value,
    left: usize,
}

impl Inliner<'_> {
    fn object(
        &mut self,
        schema: &Map<String, Value>,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(schema, reference, depth);
        }
        let mut object = Map::new();
        for (key, value) in schema {
            // What is not stated is not null.
            if value.is_null() && key == "type" {
                continue;
            }
            let is_data = matches!(key.as_str(), "const" | "default" | "enum" | "examples");
            let value = if is_data { value.clone() } else { self.value(value, depth)? };
            object.insert(key.clone(), value);
        }
        Ok(object)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<Value, String> {
        match value {
            Value::Object(object) => Ok(Value::Object(self.object(object, depth)?)),
            Value::Array(values) => values.iter().map(|value| self.value(value, depth)).collect(),
            other => Ok(other.clone()),
        }
    }

    /// What a reference stands for, and what is written beside it.
    fn referred(
        &mut self,
        schema: &Map<String, Value>,
        reference: &str,
        depth: usize,
    ) -> Result<Map<String, Value>, String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("its inputSchema refers to another document, {reference}"));
        };
        let Some(target) = self.root.pointer(pointer) else {
            return Err(format!("its inputSchema refers to {reference}, which it does not have"));
        };
        let mut object = match target.as_object() {
            Some(target) if depth < MAX_DEPTH && self.left > 0 => {
                self.left -= 1;
                self.object(target, depth + 1)?
            }
            _ => Map::new(),
        };
        for (key, value) in schema.iter().filter(|(key, _)| *key != "$ref") {
            object.insert(key.clone(), self.value(value, depth)?);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn schema(listed: &Value) -> String {
        match read(&json!({"name": "t", "inputSchema": listed})) {
            Ok(tool) => Value::Object((*tool.input_schema).clone()).to_string(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn schemas_are_repaired_or_refused() {
        let empty = r#"{"type":"object","properties":{}}"#;
        for implied in
            [json!(null), json!({}), json!({"type": null}), json!({"type": ["object", "null"]})]
        {
            assert_eq!(schema(&implied), empty);
        }
        assert_snapshot!(schema(&json!("text")), @"error: its inputSchema is not an object");
        assert_snapshot!(schema(&json!({"type": "string"})), @"error: its inputSchema is not one of an object");
        assert_snapshot!(schema(&json!({"properties": {"a": {"type": "strnig"}}})), @"error: its inputSchema is not valid: /properties/a/type: value is not valid under any of the schemas listed in the 'anyOf' keyword");
        assert_snapshot!(schema(&json!({"properties": {"a": {"type": null, "default": null}}})), @r#"{"properties":{"a":{"default":null}},"type":"object"}"#);
        assert_snapshot!(read(&json!({"inputSchema": {}})).unwrap_err(), @"it has no name");
    }

    #[test]
    fn references_are_replaced() {
        assert_snapshot!(schema(&json!({
            "properties": {"a": {"$ref": "#/$defs/A", "description": "one"}},
            "$defs": {"A": {"type": "array", "items": {"$ref": "#/definitions/B"}}},
            "definitions": {"B": {"enum": [{"$ref": "text"}]}},
        })), @r#"{"properties":{"a":{"type":"array","items":{"enum":[{"$ref":"text"}]},"description":"one"}},"type":"object"}"#);
        let tree = schema(&json!({
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"properties": {"left": {"$ref": "#/$defs/A"}, "right": {"$ref": "#/$defs/A"}}}},
        }));
        assert!(!tree.contains("$ref") && tree.len() < 100_000, "{tree}");
        assert_snapshot!(schema(&json!({"properties": {"a": {"$ref": "#/$defs/A"}}})), @"error: its inputSchema refers to #/$defs/A, which it does not have");
        assert_snapshot!(schema(&json!({"properties": {"a": {"$ref": "https://example.org/a"}}})), @"error: its inputSchema refers to another document, https://example.org/a");
    }
}
