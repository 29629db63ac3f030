use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabro_types::Usage;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::Value;

use crate::script::{Script, ScriptedCall, ScriptedResult, ScriptedTurn};
use crate::{
    AskingStage, ErrorKind, Model, ModelError, Part, Request, StopReason, ToolCall, TurnCounts,
};

/// Plays the turns of a [`Script`] for one stage instead of asking a model.
///
/// Each request takes one turn, a failed one too; the last turn of a list is repeated.
#[derive(Debug)]
pub struct ScriptedModel {
    node: Arc<str>,
    turns: Arc<[ScriptedTurn]>,
    /// The number of the next turn, from 0.
    next: AtomicUsize,
}

impl Script {
    /// The model of a stage on the main line, where `taken` are the turns of the stages before. A node
    /// with its own list begins after its own turns; the nodes without one share the list under `*`,
    /// so such a node begins after the turns that all of them have taken.
    pub fn model(&self, node: &str, taken: &TurnCounts) -> ScriptedModel {
        self.model_of(&AskingStage::new(node, taken))
    }

    /// The model of a stage on any line. The key of a list may be any of the
    /// [names](fabro_types::BranchPath::stage_names) of the stage, such as `work[1]` or
    /// `each@1/work[1]/work@1`; the most specific one wins. A list for one visit of a node starts with
    /// that visit.
    pub fn model_of(&self, stage: &AskingStage<'_>) -> ScriptedModel {
        let names = stage.branch.stage_names(stage.node, stage.visit);
        let own = names.iter().find_map(|name| Some((name, self.by_node.get(name)?)));
        let taken = |node: &str| stage.taken.get(node).copied().unwrap_or_default();
        let (turns, next) = if let Some((name, turns)) = own {
            let of_visit = name.ends_with(&format!("@{}", stage.visit));
            let before = if of_visit { stage.taken_before_visit } else { 0 };
            (Arc::clone(turns), taken(stage.node).saturating_sub(before) as usize)
        } else {
            let others =
                stage.taken.iter().filter(|(node, _)| !self.by_node.contains_key(&***node));
            let next = others.map(|(_, turns)| *turns as usize).sum();
            (self.any.clone().unwrap_or_default(), next)
        };
        ScriptedModel { node: stage.node.into(), turns, next: next.into() }
    }
}

impl Model for ScriptedModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(turn) = self.turns.get(number).or(self.turns.last()).cloned() else {
            return stream::iter([Err(no_turns(&self.node))]).boxed();
        };
        let model = request.model.or_else(|| Some("scripted".to_owned()));
        let usage = Usage { model, ..turn.usage };
        let parts = match turn.result {
            ScriptedResult::Reply { text, tool_calls } => {
                reply(text, tool_calls, &self.node, number, usage)
            }
            ScriptedResult::Error { kind, retry_after } => {
                let usage = Usage { turns: 0, failed_requests: 1, ..usage };
                vec![Err(ModelError {
                    retry_after,
                    usage: Box::new(usage),
                    ..ModelError::new(kind)
                })]
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
    number: usize,
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
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{Message, complete};

    fn model(script: &str, node: &str, taken: &[(&str, u32)]) -> ScriptedModel {
        let taken = taken.iter().map(|&(node, turns)| (Arc::from(node), turns)).collect();
        Script::from_json(script).unwrap().model(node, &taken)
    }

    fn request() -> Request {
        Request::new(vec![Message::user("continue").into()])
    }

    async fn check(script: &str, node: &str, taken: &[(&str, u32)], expected: &str) {
        let result = match complete(&model(script, node, taken), request()).await {
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
    async fn the_most_specific_list_wins() {
        let script = r#"{
            "work": [{"text": "w0"}, {"text": "w1"}],
            "work[1]": [{"text": "x0"}, {"text": "x1"}],
            "each@2/work[1]/work@2": [{"text": "y0"}, {"text": "y1"}],
            "check[0]": [{"text": "c0"}]
        }"#;
        let script = Script::from_json(script).unwrap();
        let text = async |node: &str, branch: &str, visit: u32, taken: u32, before: u32| {
            let taken = TurnCounts::unit(node.into(), taken);
            let branch = fabro_types::BranchPath::new(branch);
            let stage =
                AskingStage { node, branch, visit, taken: &taken, taken_before_visit: before };
            let answer = complete(&script.model_of(&stage), request()).await;
            answer.map_or_else(|error| format!("{:?}", error.kind), |reply| reply.text())
        };
        assert_eq!(text("work", "", 1, 0, 0).await, "w0");
        assert_eq!(text("work", "each@1/work[0]", 1, 1, 0).await, "w1");
        assert_eq!(text("work", "each@1/work[1]", 1, 0, 0).await, "x0");
        assert_eq!(text("work", "each@1/work[1]", 1, 1, 0).await, "x1");
        assert_eq!(text("work", "each@2/work[1]", 2, 2, 2).await, "y0");
        assert_eq!(text("work", "each@2/work[1]", 2, 3, 2).await, "y1");
        assert_eq!(text("check", "each@1/work[0]", 1, 0, 0).await, "c0");
        assert_ne!(text("check", "each@1/work[1]", 1, 0, 0).await, "c0");
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
        let model = model(
            r#"{"fix": [{"text": "", "tool_calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "ls"}]}]}"#,
            "fix",
            &[],
        );
        let first = complete(&model, request()).await.unwrap();
        insta::assert_snapshot!(serde_json::to_string(&first.tool_calls()).unwrap(), @r#"[{"id":"call-fix-0-0","name":"read","arguments":{"path":"a"}},{"id":"call-fix-0-1","name":"ls","arguments":{}}]"#);
        assert_eq!(first.stop, StopReason::ToolCalls);
        let second = complete(&model, request()).await.unwrap();
        assert_eq!(second.tool_calls()[0].id, "call-fix-1-0");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_have_a_delay_and_a_usage() {
        let model = model(
            r#"{"a": [{"error": "rate_limit", "retry_after_s": 30, "delay_ms": 250, "usage": {"input_tokens": 5}}]}"#,
            "a",
            &[],
        );
        let started = Instant::now();
        let error = complete(&model, request()).await.unwrap_err();
        assert_eq!(started.elapsed(), Duration::from_millis(250));
        assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
        assert_eq!((error.usage.input_tokens, error.usage.failed_requests), (5, 1));
    }

    #[tokio::test]
    async fn usage_names_the_model_that_was_asked() {
        let model = model(
            r#"{"*": [{"text": "x", "usage": {"input_tokens": 5, "output_tokens": 2}}]}"#,
            "a",
            &[],
        );
        let mut request = request();
        request.model = Some("m".to_owned());
        let reply = complete(&model, request).await.unwrap();
        insta::assert_snapshot!(serde_json::to_string(&reply.usage).unwrap(), @r#"{"model":"m","input_tokens":5,"output_tokens":2,"turns":1}"#);
    }
}
