//! Tool calls of Chat Completions, put together from their pieces.
//!
//! Servers differ here: some leave the index out, some send the same one for every call, some send
//! arguments as an object.

use serde::de::IgnoredAny;
use serde_json::Value;

/// The calls whose pieces have arrived so far.
#[derive(Debug, Default)]
pub(super) struct PartialCalls(Vec<PartialCall>);

#[derive(Debug, Default)]
pub(super) struct PartialCall {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    /// JSON text, as far as it has arrived.
    pub(super) arguments: String,
    /// Gemini's signature, on its compatible interface.
    pub(super) signature: String,
}

impl PartialCalls {
    /// Adds an entry of `tool_calls` that is a piece of a call.
    pub(super) fn add(&mut self, piece: &Value) {
        self.find_or_insert(piece).extend(piece);
    }

    /// Adds an entry of `tool_calls` that is a whole call.
    pub(super) fn add_whole(&mut self, call: &Value) {
        self.insert(None, call["id"].as_str().unwrap_or_default()).extend(call);
    }

    fn insert(&mut self, index: Option<u64>, id: &str) -> &mut PartialCall {
        let id = id.to_owned();
        let call = PartialCall { index, id, ..PartialCall::default() };
        self.0.push_mut(call)
    }

    /// The call that a piece belongs to: a new id begins a new call, and so does a name at a new
    /// index, or without an id after a call that is whole; else it is the call of this index, else the
    /// last one.
    fn find_or_insert(&mut self, piece: &Value) -> &mut PartialCall {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or_default();
        let last = self.0.iter().rposition(|it| index.is_none() || it.index == index);
        let begins = piece["function"]["name"].as_str().is_some_and(|name| !name.is_empty());
        let same = last.filter(|place| {
            let call = &self.0[*place];
            let is_next = begins && call.is_whole();
            if id.is_empty() { !is_next } else { call.id == id }
        });
        // Some servers give all calls of an answer one id.
        let place = same.or_else(|| {
            self.0.iter().rposition(|it| {
                let is_other = begins && index.is_some() && it.index.is_some() && it.index != index;
                !id.is_empty() && it.id == id && !is_other
            })
        });
        match place {
            Some(place) => &mut self.0[place],
            None => self.insert(index, id),
        }
    }

    /// The whole calls, in order.
    pub(super) fn into_calls(self) -> Vec<PartialCall> {
        self.0
    }
}

impl PartialCall {
    /// Whether nothing can follow: its arguments are valid JSON.
    fn is_whole(&self) -> bool {
        !self.name.is_empty() && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn extend(&mut self, piece: &Value) {
        let function = &piece["function"];
        let sealed = &piece["extra_content"]["google"]["thought_signature"];
        self.signature.push_str(sealed.as_str().unwrap_or_default());
        if self.name.is_empty() {
            function["name"].as_str().unwrap_or_default().clone_into(&mut self.name);
        }
        match &function["arguments"] {
            Value::Null => {}
            Value::String(more) => self.arguments.push_str(more),
            whole => self.arguments = whole.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(pieces: &Value, expect: &[(&str, &str, &str)]) {
        let mut calls = PartialCalls::default();
        for piece in pieces.as_array().unwrap() {
            calls.add(piece);
        }
        let calls = calls.into_calls();
        let calls: Vec<_> =
            calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, expect);
    }

    #[test]
    fn pieces_find_their_call() {
        let piece = |index: Value, id: Value, name: Value, arguments: Value| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
        let none = || Value::Null;
        let a = ("x", "f", r#"{"a":1}"#);
        let b = ("y", "g", "");
        let both = [a, b];
        // As specified, interleaved.
        check(
            &json!([
                piece(json!(0), json!("x"), json!("f"), json!("")),
                piece(json!(1), json!("y"), json!("g"), json!("")),
                piece(json!(0), none(), none(), json!("{\"a\"")),
                piece(json!(0), none(), none(), json!(":1}")),
            ]),
            &both,
        );
        // Without an index; with the same one; with the id repeated.
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
        let x = json!("x");
        let zero = json!(0);
        let one = json!(1);
        check(
            &json!([
                piece(zero.clone(), x.clone(), json!("f"), json!("")),
                piece(one.clone(), x.clone(), json!("g"), json!("")),
                piece(zero.clone(), x.clone(), none(), json!("{\"a\"")),
                piece(one, x, none(), json!("{}")),
                piece(zero, none(), none(), json!(":1}")),
            ]),
            &[("x", "f", r#"{"a":1}"#), ("x", "g", "{}")],
        );
        // Whole calls without an id: without an index, and with the same one.
        for index in [none(), json!(0)] {
            check(
                &json!([
                    piece(index.clone(), none(), json!("f"), json!("{\"a\":1}")),
                    piece(index.clone(), none(), json!("g"), json!({})),
                    piece(index, none(), json!("f"), json!("{\"a\":2}")),
                ]),
                &[("", "f", r#"{"a":1}"#), ("", "g", "{}"), ("", "f", r#"{"a":2}"#)],
            );
        }
        // The name in every piece.
        check(
            &json!([
                piece(none(), none(), json!("f"), json!("")),
                piece(none(), none(), json!("f"), json!("{\"a\"")),
                piece(none(), none(), json!("f"), json!(":1}")),
            ]),
            &[("", "f", r#"{"a":1}"#)],
        );
        // As an object, without an id, at an absurd place.
        check(
            &json!([piece(json!(u64::MAX), none(), json!("f"), json!({"a": 1}))]),
            &[("", "f", r#"{"a":1}"#)],
        );
        check(
            &json!([piece(json!(0), json!("x"), json!("f"), json!("{\"a\""))]),
            &[("x", "f", "{\"a\"")],
        );
        check(&json!(["nonsense", {}, []]), &[("", "", "")]);
    }
}
