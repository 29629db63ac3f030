//! The file that a scripted model plays.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fabro_types::{Usage, stage_node};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::ErrorKind;

/// The key of the turns for all nodes that have no list of their own.
const ANY: &str = "*";

/// A model script that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
#[non_exhaustive]
pub struct ScriptError {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1; for a turn as a whole, where it ends.
    pub column: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// The turns that take the place of a model's answers, by node.
///
/// A script is a JSON object with a list of turns for each node, element of a list (`work[1]`) or stage
/// (`each@1/work[1]/check@1`), and under `*` one for all other nodes. A turn has `text`, `tool_calls` (each with `name` and `arguments`) or both; or an `error`:
/// `rate_limit`, `overloaded`, `timeout`, `unreachable`, `auth`, `quota`, `unknown_model`, `context_overflow`,
/// `content_filter`, `invalid_request`, `broken_stream`, `unusable_answer` or `too_large`, with `retry_after_s` if
/// wanted. Any of them can have `delay_ms` and `usage` (`input_tokens`, `output_tokens`,
/// `cached_tokens`, `cost_usd`).
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub(crate) by_node: BTreeMap<String, Arc<[ScriptedTurn]>>,
    pub(crate) any: Option<Arc<[ScriptedTurn]>>,
}

/// One turn of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScriptedTurn {
    pub(crate) delay: Option<Duration>,
    pub(crate) usage: Usage,
    pub(crate) result: ScriptedResult,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptedResult {
    Reply { text: String, tool_calls: Vec<ScriptedCall> },
    Error { kind: ErrorKind, retry_after: Option<Duration> },
}

#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedCall {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) arguments: Map<String, Value>,
}

impl Script {
    /// Whether there are turns for this node or some of its stages: its own, or those for all nodes.
    pub fn has_turns(&self, node: &str) -> bool {
        self.any.is_some() || self.names().any(|name| stage_node(name) == node)
    }

    /// The keys of the lists: a node (`work`), a list element (`work[1]`), or one stage
    /// (`each@1/work[1]/check@1`).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(String::as_str)
    }

    /// Reads a script.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or not a script: the error says where, and what to write instead.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        serde_json::from_str(text).map_err(|error| {
            let line = error.line().max(1);
            let column = error.column().max(1);
            let message = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
            ScriptError { line, column, message }
        })
    }
}

impl<'de> Deserialize<'de> for Script {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ScriptVisitor)
    }
}

struct ScriptVisitor;

impl<'de> Visitor<'de> for ScriptVisitor {
    type Value = Script;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object of turns by node, as {"plan": [{"text": "…"}]}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Script, A::Error> {
        let mut by_node = BTreeMap::new();
        while let Some(node) = map.next_key::<String>()? {
            if by_node.contains_key(&node) {
                let message = format!("`{node}` is listed twice: put all its turns into one list");
                return Err(A::Error::custom(message));
            }
            let Turns(turns) = map.next_value()?;
            if turns.is_empty() {
                let message =
                    format!("no turns for `{node}`: add one, as {{\"text\": \"…\"}}, or remove it");
                return Err(A::Error::custom(message));
            }
            by_node.insert(node, Arc::from(turns));
        }
        let any = by_node.remove(ANY);
        Ok(Script { by_node, any })
    }
}

struct Turns(Vec<ScriptedTurn>);

impl<'de> Deserialize<'de> for Turns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(TurnsVisitor).map(Turns)
    }
}

struct TurnsVisitor;

impl<'de> Visitor<'de> for TurnsVisitor {
    type Value = Vec<ScriptedTurn>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a list of turns, as [{"text": "…"}]"#)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<ScriptedTurn>, A::Error> {
        std::iter::from_fn(|| seq.next_element().transpose()).collect()
    }
}

impl<'de> Deserialize<'de> for ScriptedTurn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TurnVisitor)
    }
}

/// Accepts objects only, where a derived deserializer would accept a list of values too.
struct TurnVisitor;

impl<'de> Visitor<'de> for TurnVisitor {
    type Value = ScriptedTurn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a turn, as {"text": "…"} or {"error": "timeout"}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScriptedTurn, A::Error> {
        TurnFields::deserialize(MapAccessDeserializer::new(map))?.turn().map_err(A::Error::custom)
    }
}

/// The fields of a turn; which of them go together is checked afterwards.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnFields {
    text: Option<String>,
    tool_calls: Option<Vec<ScriptedCall>>,
    error: Option<ErrorKind>,
    retry_after_s: Option<f64>,
    delay_ms: Option<u64>,
    #[serde(default)]
    usage: ScriptedUsage,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedUsage {
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cost_usd: f64,
}

impl TurnFields {
    fn turn(self) -> Result<ScriptedTurn, &'static str> {
        let result = match (self.error, self.text, self.tool_calls) {
            (Some(kind), None, None) => ScriptedResult::Error {
                kind,
                retry_after: self.retry_after_s.map(seconds).transpose()?,
            },
            (Some(_), ..) => return Err("a turn is an `error` or an answer: remove one of them"),
            (None, None, None) => {
                return Err("a turn needs `text`, `tool_calls` or `error`: add one");
            }
            (None, ..) if self.retry_after_s.is_some() => {
                return Err("`retry_after_s` belongs to an `error`: add one, or remove it");
            }
            (None, text, tool_calls) => ScriptedResult::Reply {
                text: text.unwrap_or_default(),
                tool_calls: tool_calls.unwrap_or_default(),
            },
        };
        if self.usage.cost_usd < 0.0 {
            return Err("`cost_usd` is out of range: use dollars from 0 on");
        }
        let usage = Usage {
            input_tokens: self.usage.input_tokens,
            output_tokens: self.usage.output_tokens,
            cached_tokens: self.usage.cached_tokens,
            cost_usd: self.usage.cost_usd,
            turns: 1,
            ..Usage::default()
        };
        Ok(ScriptedTurn { delay: self.delay_ms.map(Duration::from_millis), usage, result })
    }
}

fn seconds(number: f64) -> Result<Duration, &'static str> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| "`retry_after_s` is out of range: use seconds from 0 on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_turn() {
        let script = Script::from_json(
            r#"{"a": [{"text": ""}, {"text": "x", "tool_calls": [{"name": "f", "arguments": {"n": 1}}, {"name": "g"}]},
                      {"tool_calls": []}, {"text": "y", "delay_ms": 20, "usage": {"input_tokens": 3, "output_tokens": 4, "cached_tokens": 2, "cost_usd": 0.5}}],
                "*": [{"error": "rate_limit", "retry_after_s": 1.5}, {"error": "overloaded"}, {"error": "timeout"},
                      {"error": "auth"}, {"error": "quota"}, {"error": "context_overflow"},
                      {"error": "invalid_request", "usage": {"input_tokens": 9}}]}"#,
        )
        .unwrap();
        assert_eq!(script.by_node["a"].len(), 4);
        let used = &script.by_node["a"][3].usage;
        assert_eq!((used.input_tokens, used.output_tokens, used.cached_tokens), (3, 4, 2));
        assert!((used.cost_usd - 0.5).abs() < f64::EPSILON);
        assert_eq!(script.by_node["a"][3].delay, Some(Duration::from_millis(20)));
        let any = script.any.unwrap();
        assert_eq!(any.len(), 7);
        let retry_after = Some(Duration::from_millis(1500));
        assert_eq!(
            any[0].result,
            ScriptedResult::Error { kind: ErrorKind::RateLimit, retry_after }
        );
        assert_eq!(any[6].usage.input_tokens, 9);
    }

    #[test]
    fn errors_say_where_and_what_to_write() {
        let scripts = [
            "",
            "[]",
            "{\n  \"a\": {}}",
            "{\n  \"a\": []}",
            "{\n  \"a\": [\"hi\"]}",
            r#"{"a": [["hi", null, null, null, null, {}]]}"#,
            r#"{"a": [{"txt": "hi"}]}"#,
            r#"{"a": [{}]}"#,
            r#"{"a": [{"error": "boom"}]}"#,
            r#"{"a": [{"error": "auth", "text": "hi"}]}"#,
            r#"{"a": [{"text": "hi", "retry_after_s": 1}]}"#,
            r#"{"a": [{"error": "auth", "retry_after_s": -1}]}"#,
            r#"{"a": [{"text": "hi", "delay_ms": -1}]}"#,
            r#"{"a": [{"text": "hi", "usage": {"tokens": 1}}]}"#,
            r#"{"a": [{"text": "hi", "usage": {"cost_usd": -1}}]}"#,
            r#"{"a": [{"tool_calls": [{"name": "f", "arguments": []}]}]}"#,
            r#"{"a": [{"text": "x"}], "a": [{"text": "y"}]}"#,
            r#"{"a": [{"text": "x", "text": "y"}]}"#,
            r#"{"a": [{"text": "x"}]} x"#,
        ];
        let errors = scripts.map(|text| Script::from_json(text).unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"), @r#"
        line 1, column 1: EOF while parsing a value
        line 1, column 1: invalid type: sequence, expected an object of turns by node, as {"plan": [{"text": "…"}]}
        line 2, column 7: invalid type: map, expected a list of turns, as [{"text": "…"}]
        line 2, column 10: no turns for `a`: add one, as {"text": "…"}, or remove it
        line 2, column 12: invalid type: string "hi", expected a turn, as {"text": "…"} or {"error": "timeout"}
        line 1, column 7: invalid type: sequence, expected a turn, as {"text": "…"} or {"error": "timeout"}
        line 1, column 13: unknown field `txt`, expected one of `text`, `tool_calls`, `error`, `retry_after_s`, `delay_ms`, `usage`
        line 1, column 9: a turn needs `text`, `tool_calls` or `error`: add one
        line 1, column 23: unknown variant `boom`, expected one of `rate_limit`, `overloaded`, `timeout`, `unreachable`, `auth`, `quota`, `unknown_model`, `context_overflow`, `content_filter`, `invalid_request`, `broken_stream`, `unusable_answer`, `too_large`
        line 1, column 38: a turn is an `error` or an answer: remove one of them
        line 1, column 41: `retry_after_s` belongs to an `error`: add one, or remove it
        line 1, column 45: `retry_after_s` is out of range: use seconds from 0 on
        line 1, column 36: invalid value: integer `-1`, expected u64
        line 1, column 40: unknown field `tokens`, expected one of `input_tokens`, `output_tokens`, `cached_tokens`, `cost_usd`
        line 1, column 48: `cost_usd` is out of range: use dollars from 0 on
        line 1, column 50: invalid type: sequence, expected a map
        line 1, column 26: `a` is listed twice: put all its turns into one list
        line 1, column 27: duplicate field `text`
        line 1, column 24: trailing characters
        "#);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let start = r#"{"a": [{"tool_calls": [{"name": "f", "arguments": {"x": "#;
        let error = Script::from_json(&(start.to_owned() + &"[".repeat(1_000_000))).unwrap_err();
        insta::assert_snapshot!(error, @"line 1, column 178: recursion limit exceeded");
    }
}
