//! The conversation of a stage: a session, its thread, its corrections.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabro_agent::{
    Answer, MayAsk, Parts, Price, Session, SessionError, Settings, Steer, Transcript,
    TranscriptError,
};
use fabro_compaction::{Overrides, Policy};
use fabro_config::{CompactionPreset, CompactionSettings};
use fabro_engine::{Letter, ReadError, Stage, StageEnd};
use fabro_events::{Event, Note};
use fabro_graph::NodeKind;
use fabro_llm::{Fallback, Origin, RequestPolicy, RetryPolicy};
use fabro_tools::{ToolContext, ToolSet};
use fabro_types::{Failure, FailureClass, Fidelity, Outcome, Permissions, Usage};
use serde_json::Value;

use super::journal::StageJournal;
use super::output::{self, Output, Reading, Verdict, invalid, repairs};
use super::{LlmHandler, ModelDefaults as Defaults, cannot_record, given_up, is_named};
use crate::common::warn;
use crate::files::AgentStatus;
use crate::memory::read_recorded;

/// How a conversation ended.
pub(crate) enum Ending {
    Answered(Box<Answered>),
    Failed(Box<Outcome>),
    Canceled(Usage),
    /// The budget is used up; the conversation goes on when there is more.
    Paused,
}

/// An answer that holds.
pub(crate) struct Answered {
    pub(crate) text: String,
    /// Of a custom schema.
    pub(crate) value: Option<Value>,
    pub(crate) usage: Usage,
    pub(crate) files_touched: Vec<String>,
    pub(crate) last_file: Option<String>,
    pub(crate) status: AgentStatus,
}

impl Answered {
    /// What the stage came to.
    pub(super) async fn outcome(
        self,
        stage: &Stage,
        output: &Output,
        reading: &Reading,
    ) -> Outcome {
        let (status, last_file) = (&self.status, self.last_file.as_deref());
        let source = output::Source { stage, status, last_file, reading };
        let mut outcome = output::outcome(source, &self.text, self.value, output).await;
        outcome.usage = Some(self.usage);
        outcome.files_touched = self.files_touched;
        outcome
    }
}

/// What a conversation is about.
pub(crate) struct Talk<'a> {
    pub(crate) message: String,
    /// Empty: none.
    pub(crate) system: String,
    pub(crate) output: &'a Output,
    pub(crate) tools: ToolSet,
    pub(crate) context: ToolContext,
    /// What was recorded of it before.
    pub(crate) recorded: &'a [Event],
    /// What was recorded for it just now, by others than its session.
    pub(crate) notes: &'a [Note],
}

impl LlmHandler {
    /// Talks until there is an answer that holds, or none.
    pub(crate) async fn talk(&self, stage: &mut Stage, talk: Talk<'_>) -> Result<Ending, StageEnd> {
        let Talk { message, system, output, tools, context, recorded, notes } = talk;
        let journal = Arc::new(StageJournal::new(stage.reporter.clone()));
        let unpriced = Arc::new(AtomicBool::new(false));
        let settings = Settings { system, ..self.settings(stage, output, &unpriced) };
        let mut session = Session::new(Parts {
            id: session_id(stage).into(),
            parent: None,
            model: Arc::clone(&self.model),
            tools,
            journal: Arc::clone(&journal) as _,
            settings,
            context,
        });
        for transcript in self.thread(stage).await? {
            session.recall(Arc::unwrap_or_clone(transcript));
        }
        let own = transcript(stage, recorded)?;
        let goes_on = !own.is_empty();
        session.restore(Transcript::from_notes(notes, read_recorded(stage)).map_err(|e| lost(&e))?);
        session.restore(own);
        let since_ms = recorded.first().map(|first| first.ts_ms);
        let status = AgentStatus::before(Path::new(&stage.run.work_dir), since_ms);
        let first = if goes_on { None } else { Some(message) };
        let reading = self.reading();
        let mut conversation = Conversation { session, journal, status, reading };
        let ending = conversation.run(stage, first, output).await?;
        tell_unpriced(stage, &conversation.session.usage(), &unpriced).await;
        Ok(ending)
    }

    /// The conversations of earlier stages that the stage's goes on with.
    async fn thread(&self, stage: &Stage) -> Result<Vec<Arc<Transcript>>, StageEnd> {
        let thread = stage.at.thread_id.as_ref().filter(|_| stage.fidelity() == Fidelity::Full);
        let Some(thread) = thread else { return Ok(Vec::new()) };
        let same = stage.history.iter().filter(|it| it.thread_id.as_ref() == Some(thread));
        let mut parts = Vec::new();
        for record in same {
            let part = match self.threads.get(stage.run_id, record.until_seq) {
                Some(part) => part,
                None => {
                    let events = stage.recorded_by(record).await.map_err(cannot_record)?;
                    Arc::new(transcript(stage, &events)?)
                }
            };
            parts.push((record.until_seq, part));
        }
        self.threads.keep(stage.run_id, &parts);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    fn settings(&self, stage: &Stage, output: &Output, unpriced: &Arc<AtomicBool>) -> Settings {
        let (node, agents) = (&stage.node().attrs, &self.agents.settings);
        let is_agent = stage.node().kind == NodeKind::Agent;
        let model = self.model_name(stage);
        let window = agents.context_window.or_else(|| {
            model.as_deref().and_then(|name| self.agents.catalog.find(name)?.context_window)
        });
        let number = |name: &str| node.int(name).and_then(|max| u32::try_from(max).ok());
        let defaults = Settings::default();
        Settings {
            provider: self.provider_name(stage),
            reasoning_effort: node.text("reasoning_effort").map(str::to_owned),
            speed: node.text("speed").map(str::to_owned),
            max_tokens: number("max_tokens"),
            output_schema: output.schema().map(|schema| Arc::new(schema.clone())),
            max_turns: number("max_turns").or(agents.max_turns).unwrap_or(defaults.max_turns),
            permissions: self.permissions(stage),
            window,
            compaction: compaction_policy(&agents.compaction),
            asking: self.asking(stage),
            subagent_depth: if is_agent && is_named(stage, "spawn_agent") {
                agents.subagent_depth.unwrap_or(1)
            } else {
                0
            },
            may_ask: Some(budget(stage)),
            before_call: self.known.as_ref().map(|known| Arc::clone(&known.before_call)),
            price: Some(self.price(unpriced)),
            redactor: Some(Arc::new(self.agents.redactor.clone())),
            origin: Origin { node: Arc::clone(&stage.at.node), taken: stage.turns.clone() },
            model,
            ..defaults
        }
    }

    /// How hard models are asked, and whom else: the node's own fallbacks, else the run's.
    pub(super) fn asking(&self, stage: &Stage) -> RequestPolicy {
        let Some(asking) = &self.agents.asking else {
            return RequestPolicy { retry: RetryPolicy::none(), ..RequestPolicy::default() };
        };
        let mut asking = RequestPolicy { seed: stage.run.seed, ..asking.clone() };
        if let Some(own) = stage.node().attrs.text("fallbacks") {
            let names = own.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty());
            asking.fallbacks = names.map(Fallback::new).collect();
        }
        asking
    }

    /// What the tools of the stage's agent may do.
    pub(super) fn permissions(&self, stage: &Stage) -> Permissions {
        let own = stage.node().attrs.text("permissions").and_then(Permissions::parse);
        own.or(self.agents.settings.permissions).unwrap_or_default()
    }

    pub(super) fn model_name(&self, stage: &Stage) -> Option<String> {
        let Defaults { run, configured, .. } = &self.defaults;
        choose(stage, ["model", "default_model"], run.as_ref(), configured.as_ref())
    }

    pub(super) fn provider_name(&self, stage: &Stage) -> Option<String> {
        let Defaults { run_provider, configured_provider, .. } = &self.defaults;
        let names = ["provider", "default_provider"];
        choose(stage, names, run_provider.as_ref(), configured_provider.as_ref())
    }

    /// Puts the price of an answer into its usage.
    pub(super) fn price_now(&self, usage: &mut Usage) {
        self.price(&Arc::default())(usage);
    }

    /// Puts the price of an answer into its usage, where the model did not; notes when it is not
    /// known.
    fn price(&self, unpriced: &Arc<AtomicBool>) -> Price {
        let (catalog, unpriced) = (Arc::clone(&self.agents.catalog), Arc::clone(unpriced));
        Arc::new(move |usage| {
            if usage.cost_usd > 0.0 || usage.input_tokens + usage.output_tokens == 0 {
                return;
            }
            match catalog.cost(usage) {
                Some(dollars) => usage.cost_usd = dollars,
                None => unpriced.store(true, Ordering::Relaxed),
            }
        })
    }
}

/// A run with a spending limit is told when a price is not known, for the limit does not count it.
async fn tell_unpriced(stage: &Stage, usage: &Usage, unpriced: &AtomicBool) {
    let limit = stage.run.max_cost.or_else(|| stage.plan.workflow().attrs().float("max_cost"));
    if limit.is_some() && unpriced.load(Ordering::Relaxed) {
        let model = usage.model.as_deref().unwrap_or("the model");
        let message = format!("the price of {model} is not known, so max_cost does not count it");
        warn(&stage.reporter, "price", message).await;
    }
}

/// The first that is there: the node's own, the run's, the graph's, the configured one.
fn choose(
    stage: &Stage,
    [own, default]: [&str; 2],
    run: Option<&String>,
    configured: Option<&String>,
) -> Option<String> {
    let (node, graph) = (&stage.node().attrs, stage.plan.workflow().attrs());
    let own = node.text(own).map(str::to_owned);
    own.or_else(|| run.cloned())
        .or_else(|| graph.text(default).map(str::to_owned))
        .or_else(|| configured.cloned())
}

/// A session and what belongs to it.
struct Conversation {
    session: Session,
    journal: Arc<StageJournal>,
    status: AgentStatus,
    reading: Reading,
}

impl Conversation {
    /// Says `first`, or goes on where it was interrupted, and has the answer mended until it holds.
    async fn run(
        &mut self,
        stage: &mut Stage,
        first: Option<String>,
        output: &Output,
    ) -> Result<Ending, StageEnd> {
        let most = repairs(stage);
        let first = first.map_or(Say::Nothing, Say::First);
        let mut answer = self.turn(stage, first).await;
        loop {
            let answered = match answer {
                Ok(answer) => answer,
                Err(error) => return self.ended(error),
            };
            let last_file = answered.last_file_touched.as_deref();
            let (status, reading) = (&self.status, &self.reading);
            let source = output::Source { stage, status, last_file, reading };
            let feedback = match output.verdict(source, &answered.text) {
                Verdict::Holds(value) => {
                    return Ok(Ending::Answered(Box::new(Answered {
                        text: answered.text,
                        value,
                        usage: answered.usage,
                        files_touched: answered.files_touched,
                        last_file: answered.last_file_touched,
                        status: status.clone(),
                    })));
                }
                Verdict::Repair(feedback) => feedback,
            };
            if self.session.corrections() >= most {
                let said = output::response_outcome(&stage.at.node, &answered.text);
                return Ok(Ending::Failed(Box::new(Outcome {
                    usage: Some(answered.usage),
                    files_touched: answered.files_touched,
                    context_updates: said.context_updates,
                    ..Outcome::failed(invalid(most))
                })));
            }
            answer = self.turn(stage, Say::Correction(feedback)).await;
        }
    }

    /// One message and its answer; what is said to the agent from outside meanwhile reaches it.
    async fn turn(&mut self, stage: &mut Stage, say: Say) -> Result<Answer, SessionError> {
        let steering = self.session.steering();
        let cancel = stage.cancel.clone();
        let session = &mut self.session;
        let answer = async {
            match say {
                Say::First(message) => session.send(message, &cancel).await,
                Say::Correction(feedback) => session.correct(feedback, &cancel).await,
                Say::Nothing => session.resume(&cancel).await,
            }
        };
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                // What is there already is for the turn that begins.
                Some(letter) = stage.mailbox.next() => {
                    if let Letter::Steer { id, text } = letter {
                        let ticket = self.journal.ticket(id);
                        let text = self.reading.redactor.redact(&text);
                        // A session that is over leaves the letter to the next agent.
                        let _ = steering.send(Steer::new(text, "inbox").with_ticket(ticket));
                    }
                }
                answer = &mut answer => return answer,
            }
        }
    }

    fn ended(&self, error: SessionError) -> Result<Ending, StageEnd> {
        let usage = self.session.usage();
        Ok(match error {
            SessionError::Canceled => Ending::Canceled(given_up(usage)),
            SessionError::Budget => Ending::Paused,
            SessionError::Journal(error) => return Err(cannot_record(error)),
            error => {
                let failed = Outcome::failed(error.into());
                let files_touched = self.session.files_touched();
                Ending::Failed(Box::new(Outcome { usage: Some(usage), files_touched, ..failed }))
            }
        })
    }
}

/// Names the conversation of the stage.
pub(super) fn session_id(stage: &Stage) -> String {
    let branch = stage.branch.as_deref().map(|branch| format!("{branch}/")).unwrap_or_default();
    format!("{branch}{}@{}", stage.at.node, stage.at.visit)
}

/// What a session is told.
enum Say {
    First(String),
    Correction(String),
    /// It goes on where it was.
    Nothing,
}

fn transcript(stage: &Stage, events: &[Event]) -> Result<Transcript, StageEnd> {
    Transcript::from_events(events, read_recorded(stage)).map_err(|error| lost(&error))
}

fn lost(error: &TranscriptError<ReadError>) -> StageEnd {
    Failure::new(FailureClass::Structural, format!("the conversation is lost: {error}")).into()
}

/// How conversations are shortened by these settings.
pub fn compaction_policy(chosen: &CompactionSettings) -> Policy {
    let preset = match chosen.preset.unwrap_or_default() {
        CompactionPreset::Harness => Policy::harness(),
        CompactionPreset::Strict => Policy::strict(),
        _ => Policy::fabro(),
    };
    preset.with(&Overrides {
        enabled: chosen.enabled,
        compact_at_tokens: chosen.compact_at_tokens,
        reserve_tokens: chosen.reserve_tokens,
        keep_recent_entries: chosen.keep_recent,
        recover_from_overflow: chosen.recover_from_overflow,
        ..Overrides::default()
    })
}

/// Whether the session may ask for another turn. What the run has left was worked out when the
/// stage began; what the session had spent by then is part of it.
fn budget(stage: &Stage) -> MayAsk {
    let (dollars, tokens, before) = (stage.budget, stage.tokens_left, stage.at.spent.clone());
    let total = |usage: &Usage| usage.input_tokens.saturating_add(usage.output_tokens);
    Arc::new(move |usage| {
        let fits = dollars.is_none_or(|left| usage.cost_usd - before.cost_usd < left);
        let used = total(usage).saturating_sub(total(&before));
        fits && tokens.is_none_or(|left| used < left)
    })
}
