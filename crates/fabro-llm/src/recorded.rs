use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::{Content, ErrorKind, Model, ModelError, Origin, Part, Reply, Request};

/// Gives the answers that were recorded, in their order for each node.
///
/// A request takes the answer that [`Origin::taken`] says for its node, so the same request always
/// gets the same one.
///
/// ```
/// use fabro_llm::{Origin, RecordedModel, Recording, Request, SimulatedModel, complete};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let recording = Recording::new(SimulatedModel);
/// let request = Request::new(Origin::new("plan"), Vec::new());
/// let reply = runtime.block_on(complete(&recording, request.clone()))?;
/// let recorded = RecordedModel::new(recording.answers());
/// assert_eq!(runtime.block_on(complete(&recorded, request))?, reply);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RecordedModel {
    answers: BTreeMap<Arc<str>, Vec<Reply>>,
}

impl RecordedModel {
    /// A model that gives these answers: those of one node in the order in which they come here.
    pub fn new(answers: impl IntoIterator<Item = (Arc<str>, Reply)>) -> Self {
        let mut by_node: BTreeMap<Arc<str>, Vec<Reply>> = BTreeMap::new();
        for (node, reply) in answers {
            by_node.entry(node).or_default().push(reply);
        }
        Self { answers: by_node }
    }

    fn answer(&self, origin: &Origin) -> Result<&Reply, ModelError> {
        let taken = origin.taken.get(&origin.node).copied().unwrap_or(0);
        let answers = self.answers.get(&origin.node).map_or(&[][..], Vec::as_slice);
        let index = usize::try_from(taken).unwrap_or(usize::MAX);
        answers.get(index).ok_or_else(|| {
            let (node, count) = (&origin.node, answers.len());
            let number = u64::from(taken) + 1;
            ModelError::new(ErrorKind::Script).with_message(format!(
                "the recording has {count} answers for node `{node}`, and this is request {number}: \
                 the run goes another way than the recorded one"
            ))
        })
    }
}

impl Model for RecordedModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let parts: Vec<_> = match self.answer(&request.origin) {
            Ok(reply) => parts(reply).map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(parts).boxed()
    }
}

fn parts(reply: &Reply) -> impl Iterator<Item = Part> {
    let content = reply.content.iter().filter_map(|content| match content {
        Content::Text { text } => Some(Part::Text(text.clone())),
        Content::Reasoning(thought) => Some(Part::Reasoning(thought.clone())),
        Content::ToolCall(call) => Some(Part::ToolCall(call.clone())),
        Content::ToolResult { .. } => None,
    });
    content.chain([Part::End { usage: reply.usage.clone(), stop: reply.stop }])
}

/// Answers with the nodes that asked.
type Answers = Vec<(Arc<str>, Reply)>;

/// A model that keeps every whole answer it gives, for a [`RecordedModel`].
#[derive(Debug, Default)]
pub struct Recording<M> {
    model: M,
    answers: Arc<Mutex<Answers>>,
}

impl<M: Model> Recording<M> {
    /// Records what this model says.
    pub fn new(model: M) -> Self {
        Self { model, answers: Arc::default() }
    }

    /// The answers so far, with the nodes that asked, in the order in which they ended.
    pub fn answers(&self) -> Vec<(Arc<str>, Reply)> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<M: Model> Model for Recording<M> {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let node = request.origin.node.clone();
        let answers = Arc::clone(&self.answers);
        let mut seen = Vec::new();
        let parts = self.model.stream(request).map(move |part| {
            seen.push(part.clone());
            if matches!(part, Ok(Part::End { .. })) {
                let whole = stream::iter(std::mem::take(&mut seen)).boxed();
                let reply = futures_util::FutureExt::now_or_never(crate::collect(whole, |_| {}));
                if let Some(Ok(reply)) = reply {
                    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    answers.push((node.clone(), reply));
                }
            }
            part
        });
        parts.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reasoning, ScriptedModel, complete};

    fn request(node: &str, taken: u32) -> Request {
        let mut request = Request::new(Origin::new(node), Vec::new());
        request.origin.taken.insert(node.into(), taken);
        request
    }

    #[tokio::test]
    async fn answers_come_back_in_order_for_each_node() {
        let script = r#"{"a": [{"error": "timeout"}, {"text": "a1"}, {"text": "a2",
            "tool_calls": [{"name": "ls"}]}], "b": [{"text": "b0", "usage": {"input_tokens": 3}}]}"#;
        let model = Recording::new(ScriptedModel::from_json(script).unwrap());
        let mut told = Vec::new();
        for (node, taken) in [("a", 0), ("a", 1), ("b", 0), ("a", 2)] {
            told.extend(complete(&model, request(node, taken)).await);
        }
        let recorded = RecordedModel::new(model.answers());
        let mut again = Vec::new();
        for (node, taken) in [("a", 0), ("b", 0), ("a", 1)] {
            again.push(complete(&recorded, request(node, taken)).await.unwrap());
        }
        assert_eq!(again, [told[0].clone(), told[1].clone(), told[2].clone()]);
        let error = complete(&recorded, request("a", 2)).await.unwrap_err();
        insta::assert_snapshot!(error, @"the recording has 2 answers for node `a`, and this is request 3: the run goes another way than the recorded one");
        let error = complete(&recorded, request("c", 0)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Script);
    }

    #[test]
    fn answers_can_be_kept_as_json() {
        let reply = Reply {
            content: vec![
                Content::Reasoning(Reasoning {
                    signature: Some("sealed".to_owned()),
                    provider: Some("anthropic".to_owned()),
                    ..Reasoning::default()
                }),
                Content::Text { text: "hi".to_owned() },
            ],
            usage: fabro_types::Usage { turns: 1, ..fabro_types::Usage::default() },
            stop: crate::StopReason::Complete,
        };
        let json = serde_json::to_string(&reply).unwrap();
        insta::assert_snapshot!(json, @r#"{"content":[{"type":"reasoning","signature":"sealed","provider":"anthropic"},{"type":"text","text":"hi"}],"usage":{"input_tokens":0,"output_tokens":0,"turns":1},"stop":"complete"}"#);
        assert_eq!(serde_json::from_str::<Reply>(&json).unwrap(), reply);
    }
}
