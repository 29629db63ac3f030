//! What can be done with the runs of a store, for pages, the API and tools: each is one call of the libraries
//! that the command line calls too.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use fabro_events::{AnsweredBy, Event, EventBody};
use fabro_inspect::{PsRow, read_back};
use fabro_run::{
    BackgroundOptions, Cancellation, ForkChanges, Gate, Overrides, RefreshedModels, RunSpec,
    StartedRun, gate_names, is_driven,
};
use fabro_store::{RunLog as _, RunSummary, Runs as _, SqliteStore};
use fabro_types::{RunId, RunStatus};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::folds::{Folds, OpenGate};
use crate::inbox::{UnreadableRun, lost_runs, open_gates};
use crate::problem::Problem;
use crate::turns::Turns;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The `fabro` program, which drives runs in processes of its own.
    pub program: PathBuf,
    /// The directory in whose project workflows are started.
    pub project: PathBuf,
    /// The settings file of the user.
    pub user_file: Option<PathBuf>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// Names of the host that requests may use besides those of the loopback interface.
    pub allowed_hosts: Vec<String>,
}

/// The runs of a store, and the project in which workflows are started.
#[derive(Clone)]
pub(crate) struct Actions {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) folds: Arc<Folds>,
    pub(crate) config: ServerConfig,
    /// One resume of a run at a time: a second one would take the first record of the first driver for that of its own.
    resumes: Arc<Turns<RunId>>,
}

/// A run to start.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// A workflow of the project: its name, or its file in the folder of the project, as `GET /api/v1/workflows` lists them.
    pub(crate) workflow: String,
    /// The goal; overrides the one in the workflow.
    #[serde(default)]
    pub(crate) goal: Option<String>,
    /// Inputs, over those of the run.toml.
    #[serde(default)]
    pub(crate) inputs: Map<String, Value>,
    /// The model of stages that name none.
    #[serde(default)]
    pub(crate) model: Option<String>,
    /// Execute nothing: models are simulated and scripts are skipped.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Answer every gate with its default, else its first option.
    #[serde(default)]
    pub(crate) auto_approve: bool,
    /// Seed of all random choices; absent for a hash of workflow and inputs.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    /// Pause when the run has cost this much, in US dollars.
    #[serde(default, deserialize_with = "spending_limit")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) max_cost: Option<f64>,
    /// Work in a git worktree of the run's own.
    #[serde(default)]
    pub(crate) worktree: bool,
}

/// An amount in US dollars above 0, which is checked before anything else of a request.
fn spending_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Option::<f64>::deserialize(from)? {
        Some(limit) if !limit.is_finite() || limit <= 0.0 => {
            Err(D::Error::custom("`max_cost` is no amount in US dollars above 0"))
        }
        limit => Ok(limit),
    }
}

/// A run that was started or resumed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Started {
    /// The run.
    #[schemars(with = "String")]
    id: RunId,
    /// What the caller should know.
    warnings: Vec<String>,
}

/// An answer to a gate.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The gate, if several wait, by the shortest name that is unique: NODE, NODE@VISIT, NODE[ELEMENT] or BRANCH/NODE.
    #[serde(default)]
    pub(crate) gate: Option<String>,
    /// An option's key, number or label, or free text.
    pub(crate) choice: String,
    /// Whether a run that waits for people continues in the background.
    #[serde(default = "yes")]
    pub(crate) resume: bool,
}

fn yes() -> bool {
    true
}

/// What a change of a run has done.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Done {
    /// The run.
    #[schemars(with = "String")]
    id: RunId,
    /// The gate that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
    /// The stages whose agents get the message now; empty when it is queued for the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_to: Option<Vec<String>>,
    /// Whether a process drives the run. One that is not driven continues with a resume.
    driven: bool,
}

/// A message to agents.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Steer {
    /// The message.
    pub(crate) text: String,
    /// Only agents of this node.
    #[serde(default)]
    pub(crate) node: Option<String>,
}

/// A cancellation.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    /// The reason, for the log.
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// How a run was canceled.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Canceled {
    /// The run.
    #[schemars(with = "String")]
    id: RunId,
    /// True when it has ended; false when its driver is ending it.
    ended: bool,
    /// Why its sandbox could not be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// A run that was removed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Removed {
    /// The run.
    #[schemars(with = "String")]
    id: RunId,
    /// What of it could not be removed, a sentence each: a sandbox, a git worktree.
    warnings: Vec<String>,
}

/// What a resume changes.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    /// A new spending limit in US dollars; a limit of tokens no longer applies.
    #[serde(default, deserialize_with = "spending_limit")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) max_cost: Option<f64>,
    /// Answer every gate with its default, else its first option.
    #[serde(default)]
    pub(crate) auto_approve: bool,
    /// Take providers and models of the settings as they are now.
    #[serde(default)]
    pub(crate) refresh_providers: bool,
}

/// A copy of a run up to the end of a stage.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fork {
    /// The stage to continue after, `[BRANCH/]NODE[@VISIT]`; absent for the last one.
    #[serde(default)]
    pub(crate) stage: Option<String>,
    /// Context values to set there.
    #[serde(default)]
    pub(crate) set: Map<String, Value>,
    /// Inputs of the copy; they override those of the run. Finished stages used the old values.
    #[serde(default)]
    pub(crate) inputs: Map<String, Value>,
}

/// The end of a stage that a run goes back to.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rewind {
    /// The stage to continue after, `[BRANCH/]NODE[@VISIT]`; absent for the last one.
    #[serde(default)]
    pub(crate) stage: Option<String>,
    /// Context values to set there.
    #[serde(default)]
    pub(crate) set: Map<String, Value>,
}

/// A run that was forked or rewound.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Forked {
    /// The run to resume.
    #[schemars(with = "String")]
    id: RunId,
    /// The run that it was made from.
    #[schemars(with = "String")]
    from: RunId,
    /// The stage after which it continues.
    stage: String,
    /// Artifacts that the copy does not have.
    warnings: Vec<String>,
}

/// Which runs are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunQuery {
    /// Only runs with this status: `running`, `paused`, `succeeded`, ….
    #[serde(default)]
    pub(crate) status: Option<String>,
    /// Only runs of the workflow with this name.
    #[serde(default)]
    pub(crate) workflow: Option<String>,
    /// Only runs with this text in their id, workflow or goal; upper and lower case are the same.
    #[serde(default)]
    pub(crate) search: Option<String>,
    /// The runs of sub-workflows too.
    #[serde(default)]
    pub(crate) all: bool,
    /// How many, 1 to 500 [default: 50].
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    pub(crate) limit: Option<usize>,
    /// Where the page begins: `next` of the page before.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[0-9]+\.[0-9A-Za-z]{26}$"))]
    pub(crate) cursor: Option<String>,
}

/// A page of the list of runs.
#[derive(Debug, Serialize)]
pub(crate) struct RunPage {
    /// The runs, newest first, as `fabro ps --json` has them.
    pub(crate) runs: Vec<PsRow>,
    /// The cursor of the next page; null on the last one.
    pub(crate) next: Option<String>,
    /// Runs of this page whose events cannot be read; on the first page also those of which the database has nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

const USUAL_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// Which context is read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextQuery {
    /// After this stage instead of now.
    #[serde(default)]
    pub(crate) at: Option<String>,
    /// With `to`: the changes from the end of this stage.
    #[serde(default)]
    pub(crate) from: Option<String>,
    /// With `from`: the changes to the end of this stage.
    #[serde(default)]
    pub(crate) to: Option<String>,
    /// Large values instead of references to them.
    #[serde(default)]
    pub(crate) resolve: bool,
}

/// A gate of the inbox.
#[derive(Debug, Serialize)]
pub(crate) struct WaitingGate {
    /// The run to answer.
    pub(crate) run: RunId,
    /// The workflow of the run.
    pub(crate) workflow: String,
    /// The status of the run: one that is paused continues with a resume after the answer.
    pub(crate) status: RunStatus,
    /// What the gate is called in an answer.
    pub(crate) name: String,
    /// The gate.
    #[serde(flatten)]
    pub(crate) gate: Gate,
}

/// The inbox.
#[derive(Debug, Serialize)]
pub(crate) struct WaitingGates {
    /// The gates that wait, newest run first.
    pub(crate) gates: Vec<WaitingGate>,
    /// The runs that may have others: their logs cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<UnreadableRun>,
}

/// The last sequence number of a run that the caller has seen, where the change is meant for that state
/// alone.
pub(crate) type ExpectedSeq = Option<u64>;

impl Actions {
    pub(crate) fn new(store: Arc<SqliteStore>, config: ServerConfig) -> Self {
        let folds = Arc::new(Folds::new(Arc::clone(&store)));
        Self { store, folds, config, resumes: Arc::default() }
    }

    /// The run that a text means: its id, the beginning of it, or `latest`.
    pub(crate) async fn find(&self, text: &str) -> Result<RunId, Problem> {
        Ok(self.store.find(text).await?)
    }

    /// The workflows of the project, by the words that `fabro run` takes in its folder: names, and files of the
    /// folder itself.
    pub(crate) fn workflows(&self) -> BTreeSet<String> {
        let mut all = fabro_config::workflow_names(&self.config.project);
        all.append(&mut fabro_config::workflow_files(&self.config.project));
        all
    }

    /// The workflow of the project with this name, or in this file of its folder.
    pub(crate) fn workflow(&self, name: &str) -> Result<fabro_config::Target, Problem> {
        let project = &self.config.project;
        // A path could name any file of the machine.
        if !self.workflows().contains(name) {
            return Err(Problem::not_found(
                "workflow_not_found",
                format!("the project has no workflow `{}`", name.escape_debug()),
                "GET /api/v1/workflows lists those of the project",
            ));
        }
        Ok(fabro_config::locate(name, project, self.config.home.as_deref())?)
    }

    /// A page of the list of runs.
    pub(crate) async fn list(&self, query: &RunQuery) -> Result<RunPage, Problem> {
        self.page_of(self.store.list().await?, query).await
    }

    /// A page of these runs, which are all of the store.
    pub(crate) async fn page_of(
        &self,
        runs: Vec<RunSummary>,
        query: &RunQuery,
    ) -> Result<RunPage, Problem> {
        let limit = query.limit.unwrap_or(USUAL_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Problem::invalid(
                format!("`limit` is {limit}"),
                format!("name a number from 1 to {MAX_LIMIT}"),
            ));
        }
        let search = query.search.as_deref().map(str::to_lowercase);
        let is_wanted = |row: &PsRow| {
            query.status.as_deref().is_none_or(|status| row.status.as_str() == status)
                && query.workflow.as_deref().is_none_or(|name| row.workflow == name)
                && search.as_deref().is_none_or(|text| {
                    let id = row.id.to_string().to_lowercase();
                    let all = [id, row.workflow.to_lowercase(), row.goal.to_lowercase()];
                    all.iter().any(|it| it.contains(text))
                })
        };
        let rows = fabro_inspect::ps(runs, query.all);
        let from = match &query.cursor {
            None => 0,
            Some(cursor) => after(&rows, cursor)?,
        };
        let mut page: Vec<PsRow> =
            rows.into_iter().skip(from).filter(is_wanted).take(limit + 1).collect();
        let next = (page.len() > limit).then(|| {
            page.truncate(limit);
            page.last().map(|row| format!("{}.{}", row.started_ms, row.id))
        });
        let mut warnings = Vec::new();
        if query.cursor.is_none() {
            let lost = lost_runs(&self.store).await?;
            warnings.extend(lost.into_iter().map(|(_, error)| error.to_string()));
        }
        for row in &mut page {
            let described = fabro_inspect::describe(&*self.store, row).await;
            warnings.extend(described.err().map(|error| error.to_string()));
        }
        Ok(RunPage { runs: page, next: next.flatten(), warnings })
    }

    /// The context of a run as JSON, after the stage `at` if it is named.
    pub(crate) async fn context(
        &self,
        run: RunId,
        at: Option<&str>,
        is_resolved: bool,
    ) -> Result<Value, Problem> {
        let context = self.folds.line(run, at).await?.context;
        if !is_resolved {
            return Ok(context.to_json());
        }
        let mut values = Map::new();
        for (key, value) in context.iter() {
            let mut value = Arc::clone(value);
            read_back(key, &mut value, &*self.store)?;
            values.insert(key.to_owned(), Arc::unwrap_or_clone(value));
        }
        Ok(values.into())
    }

    /// The gates that wait for an answer, of all runs, newest run first.
    pub(crate) async fn waiting_gates(&self) -> Result<WaitingGates, Problem> {
        let all = open_gates(&self.store, &self.folds).await?;
        let mut gates = Vec::new();
        for (run, open) in all.runs {
            // The run takes an answer that is given when it is driven again.
            for OpenGate { name, gate, .. } in open.into_iter().filter(|it| it.answered.is_none()) {
                let workflow = run.workflow.clone();
                gates.push(WaitingGate { run: run.id, workflow, status: run.status, name, gate });
            }
        }
        Ok(WaitingGates { gates, unreadable: all.unreadable })
    }

    /// Starts a run of a workflow of the project, with this id if it is given: a run that has it already
    /// is the one that was asked for.
    pub(crate) async fn start(&self, start: &Start, id: Option<RunId>) -> Result<Started, Problem> {
        if let Some(id) = id
            && let Some(started) = self.started_before(id).await?
        {
            return Ok(started);
        }
        let project = &self.config.project;
        let home = self.config.home.as_deref();
        let target = self.workflow(&start.workflow)?;
        let (settings, _) =
            fabro_config::settings(project, self.config.user_file.as_deref(), home)?;
        let overrides = Overrides {
            goal: start.goal.clone(),
            inputs: start.inputs.clone(),
            model: start.model.clone(),
            auto_approve: start.auto_approve,
            dry_run: start.dry_run,
            seed: start.seed,
            max_cost: start.max_cost,
            worktree: start.worktree,
            ..Overrides::default()
        };
        let mut spec = RunSpec::from_target(&target, settings, overrides, project, home)?;
        spec.id = id;
        let program = &self.config.program;
        let started = fabro_run::start_in_background(Arc::clone(&self.store), spec, program);
        let started = Box::pin(started).await;
        Ok(started?.into())
    }

    /// The run, if an earlier request with the same key has created it. A server that ended before it had
    /// started the driver does that now.
    async fn started_before(&self, id: RunId) -> Result<Option<Started>, Problem> {
        let first = self.store.read(id, 0, 16).await?;
        if first.is_empty() {
            return Ok(None);
        }
        let is_start = |event: &Event| matches!(event.entry.body, EventBody::RunStarted {});
        if first.iter().any(is_start) || self.is_driven(id).await? {
            return Ok(Some(Started { id, warnings: Vec::new() }));
        }
        Ok(Some(self.resume(id, &Resume::default(), None).await?))
    }

    /// Answers a gate.
    pub(crate) async fn answer(
        &self,
        run: RunId,
        answer: &Answer,
        by: AnsweredBy,
        at: ExpectedSeq,
    ) -> Result<Done, Problem> {
        let Answer { gate, choice, resume } = answer;
        let store = &*self.store;
        let gate = fabro_run::answer(store, run, gate.as_deref(), choice, by, at).await?;
        let answered = gate_names(std::slice::from_ref(&gate)).pop();
        if *resume {
            let root = self.store.root(run).await?;
            let program = &self.config.program;
            let resumed = fabro_run::resume_answered(Arc::clone(&self.store), root, program);
            Box::pin(resumed).await?;
        }
        Ok(Done { id: run, answered, sent_to: None, driven: self.is_driven(run).await? })
    }

    /// Sends a message to agents.
    pub(crate) async fn steer(
        &self,
        run: RunId,
        steer: &Steer,
        at: ExpectedSeq,
    ) -> Result<Done, Problem> {
        let Steer { text, node } = steer;
        let sent = fabro_run::steer(&*self.store, run, text, node.as_deref(), at).await?;
        Ok(Done {
            id: run,
            answered: None,
            sent_to: Some(sent),
            driven: self.is_driven(run).await?,
        })
    }

    /// Cancels a run.
    pub(crate) async fn cancel(
        &self,
        run: RunId,
        cancel: &Cancel,
        at: ExpectedSeq,
    ) -> Result<Canceled, Problem> {
        let reason = cancel.reason.as_deref().unwrap_or("canceled by the user");
        let done = fabro_run::cancel_here(&self.store, run, reason, at).await?;
        let (ended, warning) = match done {
            Cancellation::Ended { warning } => (true, warning),
            Cancellation::Requested => (false, None),
        };
        Ok(Canceled { id: run, ended, warning })
    }

    /// Removes a run that is not driven, with all its data.
    pub(crate) async fn remove(&self, run: RunId) -> Result<Removed, Problem> {
        Ok(Removed { id: run, warnings: fabro_run::remove_run(&self.store, run).await? })
    }

    /// Resumes a run in the background.
    pub(crate) async fn resume(
        &self,
        run: RunId,
        resume: &Resume,
        at: ExpectedSeq,
    ) -> Result<Started, Problem> {
        let ServerConfig { project, user_file, home, .. } = &self.config;
        let models = if resume.refresh_providers {
            let user_file = user_file.as_deref();
            let (settings, _) = fabro_config::settings(project, user_file, home.as_deref())?;
            Some(RefreshedModels::of(&settings))
        } else {
            None
        };
        let options = BackgroundOptions {
            max_cost: resume.max_cost,
            auto_approve: resume.auto_approve,
            models,
            at,
        };
        let store = Arc::clone(&self.store);
        let program = &self.config.program;
        let turn = self.resumes.of(run);
        let _turn = turn.lock().await;
        Ok(fabro_run::resume_in_background(store, run, options, program).await?.into())
    }

    /// Copies a run up to the end of a stage.
    pub(crate) async fn fork(
        &self,
        run: RunId,
        fork: &Fork,
        at: ExpectedSeq,
    ) -> Result<Forked, Problem> {
        let stage = fork.stage.as_deref();
        let changes = ForkChanges { set: fork.set.clone(), inputs: fork.inputs.clone() };
        let forked = fabro_run::fork_here(&self.store, run, stage, &changes, at).await;
        let (point, warnings) = forked?;
        Ok(Forked { id: point.id, from: run, stage: point.stage, warnings })
    }

    /// Takes a run back to the end of a stage.
    pub(crate) async fn rewind(
        &self,
        run: RunId,
        rewind: &Rewind,
        at: ExpectedSeq,
    ) -> Result<Forked, Problem> {
        let stage = rewind.stage.as_deref();
        let point = fabro_run::rewind(&*self.store, run, stage, &rewind.set, at).await?;
        Ok(Forked { id: point.id, from: run, stage: point.stage, warnings: Vec::new() })
    }

    async fn is_driven(&self, run: RunId) -> Result<bool, Problem> {
        Ok(is_driven(&*self.store, self.store.root(run).await?).await?)
    }
}

/// The index of the first row after a cursor, whose run may have been removed.
fn after(rows: &[PsRow], cursor: &str) -> Result<usize, Problem> {
    let parts = cursor
        .split_once('.')
        .and_then(|(ms, id)| Some((ms.parse::<i64>().ok()?, id.parse::<RunId>().ok()?)));
    let Some((started_ms, id)) = parts else {
        return Err(Problem::invalid("`cursor` is none of this API", "use `next` of a page"));
    };
    let place = rows.iter().position(|row| row.id == id).map(|at| at + 1);
    let older = || rows.iter().position(|row| row.started_ms < started_ms);
    Ok(place.or_else(older).unwrap_or(rows.len()))
}

impl From<StartedRun> for Started {
    fn from(run: StartedRun) -> Self {
        Self { id: run.id, warnings: run.warnings }
    }
}
