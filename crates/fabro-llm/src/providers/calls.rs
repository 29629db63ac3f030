//! Tool calls of Chat Completions, put together from their pieces.
//!
//! Servers differ here: some leave the index out, some say the same one for every call, some send
//! arguments as an object.

use serde_json::{Map, Value};

use crate::ToolCall;

#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Partial>);

#[derive(Debug)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Adds what a chunk says.
    pub(super) fn add(&mut self, chunk: &Value) {
        for piece in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let partial = self.partial(piece);
            let function = &piece["function"];
            if partial.name.is_empty() {
                function["name"].as_str().unwrap_or_default().clone_into(&mut partial.name);
            }
            match &function["arguments"] {
                Value::Null => {}
                Value::String(more) => partial.arguments.push_str(more),
                whole => partial.arguments = whole.to_string(),
            }
        }
    }

    /// The call that a piece belongs to: a new id begins a new call, and so does a name at a new
    /// index; else it is the call of this index, else the last one.
    fn partial(&mut self, piece: &Value) -> &mut Partial {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or_default();
        let last = self.0.iter().rposition(|it| index.is_none() || it.index == index);
        let same = last.filter(|place| id.is_empty() || self.0[*place].id == id);
        // Some servers give all calls of an answer one id.
        let begins = piece["function"]["name"].as_str().is_some_and(|name| !name.is_empty());
        let place = same.or_else(|| {
            self.0.iter().rposition(|it| {
                let is_other = begins && index.is_some() && it.index.is_some() && it.index != index;
                !id.is_empty() && it.id == id && !is_other
            })
        });
        let place = place.unwrap_or_else(|| {
            let (name, arguments) = (String::new(), String::new());
            self.0.push(Partial { index, id: id.to_owned(), name, arguments });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// The whole calls, in order.
    pub(super) fn into_calls(self) -> Vec<ToolCall> {
        let calls = self.0.into_iter().map(|partial| ToolCall {
            id: partial.id,
            name: partial.name,
            arguments: arguments(Value::String(partial.arguments)),
        });
        calls.collect()
    }
}

/// Arguments as they come, text that may be JSON. What is none stays a text.
pub(super) fn arguments(value: Value) -> Value {
    match value {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(pieces: &Value, expect: &[(&str, &str, Value)]) {
        let mut calls = Calls::default();
        for piece in pieces.as_array().unwrap() {
            calls.add(&json!({"choices": [{"delta": {"tool_calls": [piece]}}]}));
        }
        let calls = calls.into_calls();
        let told: Vec<_> = calls
            .iter()
            .map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.clone()))
            .collect();
        assert_eq!(told, expect);
    }

    #[test]
    fn pieces_find_their_call() {
        let piece = |index: Value, id: Value, name: Value, arguments: Value| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
        let none = || Value::Null;
        let a = ("x", "f", json!({"a": 1}));
        let b = ("y", "g", json!({}));
        let both = [a, b];
        // As it should be, interleaved.
        check(
            &json!([
                piece(json!(0), json!("x"), json!("f"), json!("")),
                piece(json!(1), json!("y"), json!("g"), json!("")),
                piece(json!(0), none(), none(), json!("{\"a\"")),
                piece(json!(0), none(), none(), json!(":1}")),
            ]),
            &both,
        );
        // Without an index; with the same one; with the id said again and again.
        for (index, id) in [(none(), none()), (json!(0), none()), (none(), json!("x"))] {
            check(
                &json!([
                    piece(index.clone(), json!("x"), json!("f"), json!("{\"a\"")),
                    piece(index.clone(), id, none(), json!(":1}")),
                    piece(index, json!("y"), json!("g"), none()),
                ]),
                &both,
            );
        }
        // With one id for all of them.
        let (x, zero, one) = (json!("x"), json!(0), json!(1));
        check(
            &json!([
                piece(zero.clone(), x.clone(), json!("f"), json!("")),
                piece(one.clone(), x.clone(), json!("g"), json!("")),
                piece(zero.clone(), x.clone(), none(), json!("{\"a\"")),
                piece(one, x, none(), json!("{}")),
                piece(zero, none(), none(), json!(":1}")),
            ]),
            &[("x", "f", json!({"a": 1})), ("x", "g", json!({}))],
        );
        // As an object, without an id, at an absurd place.
        check(
            &json!([piece(json!(u64::MAX), none(), json!("f"), json!({"a": 1}))]),
            &[("", "f", json!({"a": 1}))],
        );
        check(
            &json!([piece(json!(0), json!("x"), json!("f"), json!("{\"a\""))]),
            &[("x", "f", json!("{\"a\""))],
        );
        check(&json!(["nonsense", {}, []]), &[("", "", json!({}))]);
    }
}
