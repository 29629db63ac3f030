//! Runs stages by the record: prompts, conversations and questions anew, everything else as it ended.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fabro_engine::{Finished, Handler, Plan, Stage, StageEnd};
use fabro_events::{CompletedStage, PauseReason};
use fabro_graph::{Node, NodeKind};
use fabro_handlers::{Agents, FanInHandler, HumanHandler, Limits, LlmHandler, ModelDefaults};
use fabro_llm::ToolCall;
use fabro_redact::Redactor;
use fabro_run::RunSettings;
use fabro_types::{Failure, FailureClass, Outcome};
use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::replay::model::Recorded;
use crate::replay::record::{Attempt, End, Key, Record};
use crate::replay::tools::RecordedTools;
use crate::replay::turnstile::Turnstile;

/// Runs the stages of a replay.
pub(crate) struct Replayer {
    pub(crate) record: Record,
    pub(crate) turnstile: Arc<Turnstile>,
    /// How the recorded run was started.
    pub(crate) settings: RunSettings,
    pub(crate) redactor: Redactor,
    /// The recorded workflow.
    pub(crate) own: Arc<Plan>,
    /// Nodes that are the same in it; `None` when all of it is.
    pub(crate) same: Option<BTreeSet<Arc<str>>>,
    /// What was asked for that nobody recorded.
    pub(crate) unanswered: Mutex<Vec<String>>,
}

#[async_trait]
impl Handler for Replayer {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let cancel = stage.cancel.clone();
        let _inside = self.turnstile.enter();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Failure::new(FailureClass::Canceled, "canceled").into(),
            end = self.run(stage) => end,
        }
    }
}

impl Replayer {
    async fn run(&self, stage: Stage) -> StageEnd {
        let key = Key::of(&stage);
        let kind = stage.node().kind;
        let is_same = self.is_same(&stage.at.node);
        let attempt = self.record.attempt(&key).cloned();
        let (silent, has_failed) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let end = attempt.as_ref().and_then(|attempt| attempt.end.as_ref());
        let recorded = Recorded {
            key: key.clone(),
            attempt: attempt.clone().unwrap_or_default(),
            turnstile: Arc::clone(&self.turnstile),
            silent: Arc::clone(&silent),
            // A fan-in chooses by itself when its model fails.
            may_fail: kind == NodeKind::FanIn || end.is_some_and(|(_, end)| end.is_failure()),
            has_failed: Arc::clone(&has_failed),
        };
        let worked = async {
            Worked::Ended(match kind {
                NodeKind::Agent | NodeKind::Prompt => {
                    self.llm(recorded).execute(by_model(stage)).await
                }
                NodeKind::FanIn => FanInHandler::new(self.llm(recorded)).execute(stage).await,
                NodeKind::Human => HumanHandler::new(Arc::new(recorded)).execute(stage).await,
                NodeKind::Wait if attempt.is_none() => Outcome::succeeded().into(),
                // Whatever it did, it ended as recorded.
                _ => return Worked::NotAtAll,
            })
        };
        let worked = tokio::select! {
            biased;
            end = worked => end,
            () = silent.notified() => Worked::InVain,
        };
        let is_recorded = is_same || has_failed.load(Ordering::Relaxed);
        self.end(&key, attempt.as_deref(), worked, is_recorded).await
    }

    /// How the attempt ends: as recorded, with what it was asked now; or as it came out, where that
    /// follows from a change.
    async fn end(
        &self,
        key: &Key,
        attempt: Option<&Attempt>,
        worked: Worked,
        is_recorded: bool,
    ) -> StageEnd {
        let recorded = attempt.and_then(|attempt| attempt.end.as_ref());
        let was_needed = matches!(worked, Worked::InVain);
        let finished = match worked {
            Worked::Ended(StageEnd::Finished(finished)) => Some(finished),
            Worked::Ended(end) => return end,
            Worked::NotAtAll | Worked::InVain => None,
        };
        let Some((seq, end)) = recorded else {
            return match finished {
                // It was not at work at all, but needs nobody.
                Some(finished) if attempt.is_none() => StageEnd::Finished(finished),
                _ => {
                    self.open_end(key, attempt.is_some() || !self.record.is_whole);
                    StageEnd::Suspended(PauseReason::Human)
                }
            };
        };
        let end = match finished {
            Some(finished) if !is_recorded => finished,
            Some(finished) => Box::new(Finished { outcome: outcome(end), ..*finished }),
            // What ended it early came from outside.
            None if end.is_failure() || !was_needed => taken(end),
            None => {
                self.open_end(key, false);
                return StageEnd::Suspended(PauseReason::Human);
            }
        };
        self.turnstile.wait(key, *seq).await;
        StageEnd::Finished(end)
    }

    /// A stage cannot go on. That is as it should be where the record does not go on either.
    fn open_end(&self, key: &Key, is_expected: bool) {
        if is_expected {
            return;
        }
        let Key { branch, node, visit, attempt } = key;
        let branch = if branch.is_empty() { String::new() } else { format!("{branch}: ") };
        let attempt = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{branch}{node}@{visit}{attempt} needs something that was not recorded");
        if !unanswered.contains(&text) {
            unanswered.push(text);
        }
    }

    fn is_same(&self, node: &str) -> bool {
        self.same.as_ref().is_none_or(|same| same.contains(node))
    }

    fn llm(&self, recorded: Recorded) -> Arc<LlmHandler> {
        let mut settings = self.settings.agent.clone();
        settings.compaction.enabled = Some(false);
        settings.compaction.recover_from_overflow = Some(false);
        let toolbox = RecordedTools { recorded: recorded.clone(), settings: settings.clone() };
        let redactor = self.redactor.clone();
        let agents = Agents { settings, redactor, toolbox: Arc::new(toolbox), ..Agents::default() };
        let defaults = ModelDefaults {
            run: self.settings.model.clone(),
            run_provider: self.settings.provider.clone(),
            configured: self.settings.configured_model.clone(),
            configured_provider: self.settings.configured_provider.clone(),
        };
        let own = self.own.node(&recorded.key.node);
        let schema = own.and_then(|(_, node)| node.attrs.text("output_schema"));
        let was_asked = schema.is_some_and(|schema| schema.trim() == "routing");
        let attempt = Arc::clone(&recorded.attempt);
        let left_in_files = move || attempt.left_in_files(was_asked);
        let held = recorded.clone();
        let before_call = move |session: &str, call: &ToolCall| {
            let seq = held.attempt.held(session, &call.id);
            let held = held.clone();
            async move {
                if let Some(seq) = seq {
                    held.turnstile.pass(&held.key, seq).await;
                }
            }
            .boxed()
        };
        let (model, tree) = (Arc::new(recorded), Arc::default());
        let handler = LlmHandler::new(model, defaults, Limits::default(), agents, tree);
        Arc::new(handler.recorded(left_in_files, Arc::new(before_call)))
    }
}

/// What became of the work on a stage.
enum Worked {
    Ended(StageEnd),
    /// There was nothing to do.
    NotAtAll,
    /// It needed something that was not recorded.
    InVain,
}

/// The nodes that are the same in both: kind and attributes.
pub(crate) fn same_nodes(one: &Plan, other: &Plan) -> BTreeSet<Arc<str>> {
    let attrs = |node: &Node| -> Vec<(String, String)> {
        node.attrs.iter().map(|it| (it.name.to_string(), it.value.as_text().into_owned())).collect()
    };
    let is_same = |node: &&Node| {
        other.node(&node.id).is_some_and(|(_, it)| it.kind == node.kind && attrs(it) == attrs(node))
    };
    one.workflow().nodes().filter(is_same).map(|node| Arc::clone(&node.id)).collect()
}

/// A stage that another program worked on asks the recording as if it were a model: without tools,
/// as a dry run does.
fn by_model(mut stage: Stage) -> Stage {
    if matches!(stage.node().attrs.text("backend"), Some("cli" | "acp")) {
        Arc::make_mut(&mut stage.run).dry_run = true;
    }
    stage
}

fn outcome(end: &End) -> Outcome {
    match end {
        End::Retried { failure, usage } => {
            Outcome { usage: usage.clone(), ..Outcome::failed(failure.clone()) }
        }
        End::Over(done) => done.outcome.clone(),
    }
}

fn taken(end: &End) -> Box<Finished> {
    let mut finished = Finished::from(outcome(end));
    if let End::Over(done) = end {
        let CompletedStage { prompt, script, .. } = &**done;
        (finished.prompt, finished.script) = (*prompt, script.clone());
    }
    Box::new(finished)
}
