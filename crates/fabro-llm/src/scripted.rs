use fabro_types::Usage;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::Value;

use crate::script::{Script, ScriptedCall, ScriptedResult, ScriptedTurn};
use crate::{
    ErrorKind, Model, ModelError, Origin, Part, Request, ScriptError, StopReason, ToolCall,
};

/// Plays the turns of a script instead of asking a model.
///
/// A script is a JSON object with a list of turns for each node, and under `*` one for all other
/// nodes. A turn has `text`, `tool_calls` (each with `name` and `arguments`) or both; or an `error`:
/// `rate_limit`, `overloaded`, `timeout`, `unreachable`, `auth`, `quota`, `context_overflow`,
/// `content_filter`, `invalid_request`, `broken_stream` or `too_large`, with `retry_after_s` if wanted. Any of them can have `delay_ms` and `usage` (`input_tokens`,
/// `output_tokens`, `cached_tokens`, `cost_usd`).
///
/// Each request takes one turn, a failed one too; the last turn of a list is repeated. A node with
/// its own list is at the turn that [`Origin::taken`] says; the nodes without one share the list
/// under `*`, so their position is the sum of what all of them have taken.
#[derive(Debug)]
pub struct ScriptedModel {
    script: Script,
}

impl ScriptedModel {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or not a script: the error says where, and what to write instead.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        Ok(Self { script: Script::from_json(text)? })
    }

    /// The turn that this request takes, and its number, from 0.
    fn turn(&self, origin: &Origin) -> Result<(u64, &ScriptedTurn), ModelError> {
        let (turns, number) = if let Some(turns) = self.script.by_node.get(&*origin.node) {
            (turns, origin.taken.get(&origin.node).copied().map_or(0, u64::from))
        } else if let Some(turns) = &self.script.any {
            (turns, self.taken_by_others(origin))
        } else {
            return Err(no_turns(&origin.node));
        };
        let index =
            usize::try_from(number).unwrap_or(usize::MAX).min(turns.len().saturating_sub(1));
        turns.get(index).map(|turn| (number, turn)).ok_or_else(|| no_turns(&origin.node))
    }

    fn taken_by_others(&self, origin: &Origin) -> u64 {
        let others =
            origin.taken.iter().filter(|(node, _)| !self.script.by_node.contains_key(&***node));
        others.map(|(_, taken)| u64::from(*taken)).sum()
    }
}

impl Model for ScriptedModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let (number, turn) = match self.turn(&request.origin) {
            Ok((number, turn)) => (number, turn.clone()),
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let model = request.model.or_else(|| Some("scripted".to_owned()));
        let usage = Usage { model, ..turn.usage };
        let parts = match turn.result {
            ScriptedResult::Reply { text, tool_calls } => {
                reply(text, tool_calls, &request.origin.node, number, usage)
            }
            ScriptedResult::Error { kind, retry_after } => {
                vec![Err(ModelError { retry_after, usage, ..ModelError::new(kind) })]
            }
        };
        let delay = turn.delay;
        stream::once(async move {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            stream::iter(parts)
        })
        .flatten()
        .boxed()
    }
}

fn reply(
    text: String,
    tool_calls: Vec<ScriptedCall>,
    node: &str,
    number: u64,
    usage: Usage,
) -> Vec<Result<Part, ModelError>> {
    let stop = if tool_calls.is_empty() { StopReason::Complete } else { StopReason::ToolCalls };
    let calls = tool_calls.into_iter().enumerate().map(|(index, call)| {
        // The number of the turn, not its index in the list, so that a repeated turn has new ids.
        let id = format!("call-{node}-{number}-{index}");
        Part::ToolCall(ToolCall { id, name: call.name, arguments: Value::Object(call.arguments) })
    });
    let text = (!text.is_empty()).then_some(Part::Text(text));
    text.into_iter().chain(calls).chain([Part::End { usage, stop }]).map(Ok).collect()
}

fn no_turns(node: &str) -> ModelError {
    ModelError::new(ErrorKind::Script).with_message(format!(
        "the model script has no turns for node `{node}`: add a list for \"{node}\", or one for \"*\""
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{Message, complete};

    fn request(node: &str, taken: &[(&str, u32)]) -> Request {
        let mut origin = Origin::new(node);
        origin.taken = taken.iter().map(|&(node, turns)| (Arc::from(node), turns)).collect();
        Request::new(origin, vec![Message::user("go on").into()])
    }

    async fn check(script: &str, node: &str, taken: &[(&str, u32)], expected: &str) {
        let model = ScriptedModel::from_json(script).unwrap();
        let result = match complete(&model, request(node, taken)).await {
            Ok(reply) => reply.text(),
            Err(error) => error.to_string(),
        };
        assert_eq!(result, expected, "{node} {taken:?}");
    }

    const SCRIPT: &str = r#"{
        "plan": [{"text": "p0"}, {"text": "p1"}],
        "*": [{"text": "a0"}, {"text": "a1"}, {"text": "a2"}, {"text": "a3"}]
    }"#;

    #[tokio::test]
    async fn a_listed_node_has_its_own_position() {
        check(SCRIPT, "plan", &[], "p0").await;
        check(SCRIPT, "plan", &[("plan", 1), ("other", 7)], "p1").await;
        check(SCRIPT, "plan", &[("plan", 2)], "p1").await;
        check(SCRIPT, "plan", &[("plan", u32::MAX)], "p1").await;
    }

    #[tokio::test]
    async fn other_nodes_share_one_position() {
        check(SCRIPT, "b", &[], "a0").await;
        check(SCRIPT, "b", &[("plan", 5)], "a0").await;
        check(SCRIPT, "c", &[("b", 1), ("plan", 5)], "a1").await;
        check(SCRIPT, "b", &[("b", 1), ("c", 1), ("plan", 5)], "a2").await;
        check(SCRIPT, "d", &[("b", u32::MAX), ("c", u32::MAX)], "a3").await;
    }

    #[tokio::test]
    async fn a_node_without_turns_is_an_error() {
        let text =
            "the model script has no turns for node `b`: add a list for \"b\", or one for \"*\"";
        check(r#"{"plan": [{"text": "p0"}]}"#, "b", &[], text).await;
        check("{}", "b", &[], text).await;
    }

    #[tokio::test]
    async fn tool_calls_have_new_ids_when_repeated() {
        let model = ScriptedModel::from_json(
            r#"{"fix": [{"text": "", "tool_calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "ls"}]}]}"#,
        )
        .unwrap();
        let first = complete(&model, request("fix", &[])).await.unwrap();
        insta::assert_snapshot!(serde_json::to_string(&first.tool_calls()).unwrap(), @r#"[{"id":"call-fix-0-0","name":"read","arguments":{"path":"a"}},{"id":"call-fix-0-1","name":"ls","arguments":{}}]"#);
        assert_eq!(first.stop, StopReason::ToolCalls);
        let second = complete(&model, request("fix", &[("fix", 1)])).await.unwrap();
        assert_eq!(second.tool_calls()[0].id, "call-fix-1-0");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_have_a_delay_and_a_usage() {
        let model = ScriptedModel::from_json(
            r#"{"a": [{"error": "rate_limit", "retry_after_s": 30, "delay_ms": 250, "usage": {"input_tokens": 5}}]}"#,
        )
        .unwrap();
        let started = Instant::now();
        let error = complete(&model, request("a", &[])).await.unwrap_err();
        assert_eq!(started.elapsed(), Duration::from_millis(250));
        assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
        assert_eq!((error.usage.input_tokens, error.usage.turns), (5, 1));
    }

    #[tokio::test]
    async fn usage_names_the_model_that_was_asked() {
        let model = ScriptedModel::from_json(
            r#"{"*": [{"text": "x", "usage": {"input_tokens": 5, "output_tokens": 2}}]}"#,
        )
        .unwrap();
        let mut request = request("a", &[]);
        request.model = Some("m".to_owned());
        let reply = complete(&model, request).await.unwrap();
        insta::assert_snapshot!(serde_json::to_string(&reply.usage).unwrap(), @r#"{"model":"m","input_tokens":5,"output_tokens":2,"turns":1}"#);
    }
}
