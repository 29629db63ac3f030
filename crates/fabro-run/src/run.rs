//! A run: created or opened, resumed, driven.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fabro_config::GitSettings;
use fabro_engine::{
    Constants, GraphDefaults, NewRun, Phase, Plan, RunState, begin, keys, unlimited_nodes,
};
use fabro_events::{Candidate, Event, PauseReason, RunWorktree, StageFailure};
use fabro_graph::{NodeKind, Workflow};
use fabro_handlers::{WORKFLOW_DIR, read_all};
use fabro_store::{Batch, RunAt, RunStore};
use fabro_types::{ContextPatch, Diagnostic, Failure, MAX_SUB_WORKFLOW_DEPTH, RunId};
use serde_json::{Map, Value};

use crate::answers::{
    exhausted_answers, refuse_secrets_in_bundle, refuse_secrets_in_input, unknown_stages,
};
use crate::asked_models::AskedModels;
use crate::background::{DRIVER_LOG, start_driver};
use crate::concurrency::Slots;
use crate::lease::HeldLease;
use crate::model_names::asks_provider;
use crate::model_warnings::model_warnings;
use crate::older_log::refuse_older_log;
use crate::preflight;
use crate::resume_options::ResumeOptions;
use crate::run_id::new_run_id;
use crate::sandbox;
use crate::secrets::{Variables, without_secrets};
use crate::services::ServiceBuilder;
use crate::work_dir::check_work_dir;
use crate::worktree::new_worktree;
use crate::{
    Bundle, Gate, Member, RunError, RunSettings, RunSpec, SetupError, read_text, render_goal,
    running_members,
};

mod drive;

/// How driving a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveResult {
    /// The run succeeded.
    Succeeded,
    /// The run reached its exit, with failures that nothing handled, the first cause first.
    PartiallySucceeded(Vec<StageFailure>),
    /// The run failed.
    Failed {
        /// Why.
        failure: Failure,
        /// The stage failure that it began with, as far as there is one.
        cause: Option<Box<StageFailure>>,
        /// The outgoing edges of the last stage when it could not leave by any.
        edges: Vec<Candidate>,
    },
    /// The run was canceled.
    Canceled,
    /// The run waits. It can be resumed.
    Paused {
        /// For what.
        reason: PauseReason,
        /// The gates that wait for an answer.
        gates: Vec<Gate>,
        /// The stages for which no model or agent is available.
        unavailable: Vec<StageFailure>,
    },
    /// The run was interrupted. It can be resumed.
    Interrupted,
}

/// A run that only this process may drive, until the value is dropped.
#[expect(clippy::struct_field_names, reason = "a dry run is a term of its own")]
pub struct Run {
    store: Arc<dyn RunStore>,
    lease: HeldLease,
    /// Its concurrency slot.
    slot: Option<HeldLease>,
    run_dir: PathBuf,
    plan: Arc<Plan>,
    settings: RunSettings,
    /// Secrets of run.toml, which are not stored: a background driver gets them in its environment.
    secrets: Variables,
    dry_run: bool,
    state: RunState,
    events: Vec<Event>,
    max_cost: Option<f64>,
    warnings: Vec<String>,
}

impl Run {
    /// Creates a run. Nothing is started yet. Its stages leave what they write in a directory of
    /// its own below `runs_dir`.
    ///
    /// # Errors
    ///
    /// The goal cannot be rendered, the input holds a secret, a service that the settings name
    /// cannot be built, something that a stage needs is missing (a provider, a key, a program,
    /// turns of a model script), or the store cannot be written.
    pub async fn create(
        store: Arc<dyn RunStore>,
        runs_dir: &Path,
        spec: RunSpec,
    ) -> Result<Self, RunError> {
        let RunSpec { workflow, mut settings, inputs, dry_run, .. } = spec;
        let written_goal = workflow.plan.workflow().attrs().text("goal");
        let goal = match spec.goal {
            Some(goal) => goal,
            None => render_goal(written_goal.unwrap_or_default(), &inputs)?,
        };
        let redactor = ServiceBuilder::new(&settings).recorded_redactor();
        refuse_secrets_in_input(&redactor, &settings, &inputs, &goal)?;
        let (env, secrets) = without_secrets(&settings.env)?;
        let mut bundle = workflow.bundle;
        bundle.settings = RunSettings { env, ..settings.clone() };
        refuse_secrets_in_bundle(&redactor, &bundle)?;
        // With the settings, which a resume knows too.
        bundle.constants = Some(Constants::new(&goal, &inputs));
        let is_complete = !workflow.plan.reads_constants()
            && settings.graph_defaults() == GraphDefaults::default();
        let plan = if is_complete { workflow.plan } else { Arc::new(bundle.plan()?) };
        let id = spec.id.unwrap_or_else(new_run_id);
        let own_dir = runs_dir.join(id.to_string());
        let mut warnings = unknown_stages(&settings, &bundle, &plan)?;
        let mut worktree = None;
        let mut work_dir = spec.work_dir;
        check_work_dir(&work_dir, runs_dir)?;
        if dry_run && !settings.hooks.is_empty() {
            warnings.push("this is a dry run: its hooks are not run".to_owned());
        }
        if !dry_run {
            check_models(&bundle, plan.workflow())?;
            ServiceBuilder::new(&settings).check()?;
            sandbox::check(&settings.sandbox, &work_dir).await?;
            let asked = AskedModels::of(&bundle, &plan, &settings)?;
            let servers = asked.ask_servers(&mut settings).await?;
            bundle.settings.providers.clone_from(&settings.providers);
            warnings.extend(preflight::check(&bundle, &plan, &work_dir, servers)?);
            warnings.extend(model_warnings(&bundle, &plan, spec.max_cost)?);
            if settings.git.worktree == Some(true) {
                let new = new_worktree(&work_dir, id, &own_dir, &settings.git, &plan).await?;
                warnings.extend(new.warnings);
                work_dir = new.work_dir;
                worktree = Some(new.record);
            }
        }
        let slots = Slots::of(settings.concurrency.as_ref(), plan.workflow().name(), &inputs)?;
        let slot = match slots.filter(|_| !dry_run) {
            Some(slots) => slots.enter(&store).await?,
            None => None,
        };
        let workflow_dir = Value::from(spec.workflow_dir.to_string_lossy());
        let mut context = ContextPatch::from([(WORKFLOW_DIR.to_owned(), workflow_dir.into())]);
        if settings.resume_threads == Some(true) {
            context.insert(keys::RESUME_THREADS.to_owned(), Arc::new(true.into()));
        }
        let new = NewRun {
            goal,
            seed: spec.seed.unwrap_or_else(|| bundle.seed(&inputs)),
            inputs,
            work_dir: work_dir.to_string_lossy().into_owned(),
            bundle: bundle.to_bytes(),
            max_cost: spec.max_cost,
            parent: None,
            dry_run,
            worktree,
            context,
        };
        let created_ms = i64::try_from(id.unix_ms()).unwrap_or(i64::MAX);
        let commit = begin(id, created_ms, &plan, new);
        // Before it exists, so that no other process can drive it first.
        let lease = HeldLease::acquire(&store, id).await?;
        let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
        store.append_leased(lease.lease(), id, 0, &batch).await?;
        Ok(Self {
            state: RunState::replay(id, &commit.events),
            events: commit.events,
            max_cost: None,
            warnings,
            run_dir: own_dir,
            store,
            lease,
            slot,
            plan,
            settings,
            secrets,
            dry_run,
        })
    }

    /// Opens a run that has not ended, to resume it; `runs_dir` as in [`Run::create`].
    ///
    /// # Errors
    ///
    /// The run has ended, is a sub-workflow, is driven by another process, or cannot be read.
    pub async fn open(
        store: Arc<dyn RunStore>,
        runs_dir: &Path,
        id: RunId,
    ) -> Result<Self, RunError> {
        let root = store.root(id).await?;
        if root != id {
            return Err(RunError::SubWorkflow { run: id, root });
        }
        let lease = HeldLease::acquire(&store, id).await?;
        let warnings = store.check(id).await?.iter().map(ToString::to_string).collect();
        let events = read_all(&*store, id).await?;
        refuse_older_log(&*store, runs_dir, id, &events).await?;
        let state = RunState::try_replay(id, &events)?;
        let Some(created) = &state.created else { return Err(RunError::NotCreated { run: id }) };
        if let Phase::Ended(status, _) = state.phase {
            return Err(RunError::Ended { run: id, status });
        }
        let bundle = Bundle::load(&*store, created)?;
        Ok(Self {
            plan: Arc::new(bundle.plan()?),
            settings: bundle.settings,
            secrets: Variables::new(),
            dry_run: created.dry_run,
            max_cost: None,
            run_dir: runs_dir.join(id.to_string()),
            store,
            lease,
            slot: None,
            state,
            events,
            warnings,
        })
    }

    /// Checks that the log of the run, which no other process can add to now, ends at this sequence number.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`](fabro_store::StoreError::Changed) when it ends elsewhere.
    pub fn check_at(&self, seq: u64) -> Result<(), RunError> {
        let last = self.events.last().map_or(0, |event| event.seq);
        Ok(RunAt { run: self.id(), seq }.check(last)?)
    }

    /// Sets what this resume changes, after [`Run::open`]; nothing runs before [`Run::drive`].
    ///
    /// # Errors
    ///
    /// The prepared answers hold a secret.
    pub fn with_resume_options(mut self, mut options: ResumeOptions) -> Result<Self, RunError> {
        if options.answers.is_some() {
            let recorded = self.settings.clone();
            self.settings.answers = options.answers.take();
            let redactor = ServiceBuilder::new(&self.settings).recorded_redactor();
            refuse_secrets_in_input(&redactor, &self.settings, &Map::new(), "")?;
            self.warnings.extend(exhausted_answers(&self.settings, &recorded, &self.events));
        }
        options.put_models_into(&mut self.settings);
        self.settings.auto_approve |= options.auto_approve;
        self.max_cost = options.max_cost;
        let created = self.state.created.as_ref().filter(|_| options.max_cost.is_some());
        if let Some(created) = created.filter(|created| created.max_cost.is_none()) {
            let bundle = Bundle::load(&*self.store, created)?;
            self.warnings.extend(model_warnings(&bundle, &self.plan, options.max_cost)?);
        }
        Ok(self)
    }

    /// Checks that nothing is missing for the stages that a run that is resumed can still come to: a
    /// provider, a key, a program, turns of a model script. Nothing is executed and nothing recorded.
    ///
    /// # Errors
    ///
    /// What is missing, like the error of [`Run::create`]; the log of a sub-workflow is older than its files; or the
    /// store cannot be read.
    pub async fn check_resumed(&mut self) -> Result<(), RunError> {
        if let Some(created) = &self.state.created {
            // A worktree is in the store.
            let repository = |it: &RunWorktree| Path::new(&it.repository).join(&it.prefix);
            let work_dir = created.worktree.as_ref().map(repository);
            let work_dir = work_dir.unwrap_or_else(|| PathBuf::from(&created.work_dir));
            check_work_dir(&work_dir, self.run_dir.parent().unwrap_or(&self.run_dir))?;
        }
        if self.is_new() || self.dry_run {
            return Ok(());
        }
        let Some(root) = self.resumed(&self.state)? else { return Ok(()) };
        let mut members = vec![root];
        for child in self.sub_workflows().await? {
            let runs_dir = self.run_dir.parent().unwrap_or(&self.run_dir);
            refuse_older_log(&*self.store, runs_dir, child.run, &child.events).await?;
            let state = RunState::try_replay(child.run, &child.events)?;
            members.extend(self.resumed(&state)?);
        }
        let created = self.state.created.as_ref();
        let work_dir = created.map(|created| created.work_dir.clone());
        let work_dir = PathBuf::from(work_dir.unwrap_or_default());
        let has_worktree = created.is_some_and(|created| created.worktree.is_some());
        if !has_worktree && !work_dir.is_dir() {
            let message = format!("the run's working directory {} is gone", work_dir.display());
            return Err(
                SetupError::new(message, "restore the directory, then resume the run").into()
            );
        }
        if work_dir.is_dir() {
            sandbox::check(&self.settings.sandbox, &work_dir).await?;
            // Else what another process runs by now would be ended as left over.
            self.lease.check().await?;
        }
        let mut asked = AskedModels::default();
        for preflight::Resumed { bundle, plan, .. } in &members {
            asked.add(bundle, plan, &self.settings, 0)?;
        }
        let servers = asked.ask_servers(&mut self.settings).await?;
        let settings = &self.settings;
        self.warnings.extend(preflight::check_resumed(&members, settings, &work_dir, servers)?);
        Ok(())
    }

    /// Which models answer the stages of the run, and where they are from, for people; `None` when no stage asks
    /// any.
    ///
    /// # Errors
    ///
    /// The workflow kept with the run cannot be read back, or a provider's settings cannot be used.
    pub fn models(&self) -> Result<Option<String>, RunError> {
        let Some(created) = self.state.created.as_ref().filter(|_| !self.dry_run) else {
            return Ok(None);
        };
        let bundle = Bundle::load(&*self.store, created)?;
        Ok(AskedModels::of(&bundle, &self.plan, &self.settings)?.text(&self.settings)?)
    }

    /// The workflow that is kept with the run, and what validation warns of in it; `None` before the run is recorded.
    ///
    /// # Errors
    ///
    /// The workflow cannot be read back.
    pub fn recorded_warnings(&self) -> Result<Option<(Bundle, Vec<Diagnostic>)>, RunError> {
        let Some(created) = &self.state.created else { return Ok(None) };
        let bundle = Bundle::load(&*self.store, created)?;
        let warnings = bundle.warnings(&created.inputs);
        Ok(Some((bundle, warnings)))
    }

    /// The run in this state with its workflow, as it will be resumed.
    fn resumed(&self, state: &RunState) -> Result<Option<preflight::Resumed>, RunError> {
        let Some(created) = &state.created else { return Ok(None) };
        let bundle = Bundle::load(&*self.store, created)?;
        let plan = bundle.plan()?;
        let bundle = Bundle { settings: self.settings.clone(), ..bundle };
        Ok(Some(preflight::Resumed { run: state.run_id, plan, bundle, state: state.clone() }))
    }

    /// Its id.
    pub fn id(&self) -> RunId {
        self.lease.lease().run
    }

    /// What it does with git.
    pub fn git(&self) -> &GitSettings {
        &self.settings.git
    }

    /// The nodes that [nothing keeps](unlimited_nodes) from asking a model again and again.
    pub fn unlimited_nodes(&self) -> BTreeSet<Arc<str>> {
        unlimited_nodes(&self.plan, &self.state)
    }

    /// Its log so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What the caller should know: something is missing for a stage that handles it, the last
    /// record was cut off, or prepared answers are used up.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The sub-workflows that continue when the run is resumed.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn sub_workflows(&self) -> Result<Vec<Member>, RunError> {
        if self.is_new() || !self.has_sub_workflows() {
            return Ok(Vec::new());
        }
        let mut members = running_members(&*self.store, self.id()).await?;
        members.retain(|member| member.run != self.id());
        Ok(members)
    }

    /// Drives the run in a process of its own: `driver`, which has to resume the run. Returns once
    /// that has started.
    ///
    /// # Errors
    ///
    /// The process cannot be started, or it ended before it had started the run.
    pub async fn detach(mut self, mut driver: Command) -> Result<RunId, RunError> {
        let id = self.id();
        self.lease.release().await?;
        // The driver acquires its own slot.
        if let Some(mut slot) = self.slot {
            slot.release().await?;
        }
        driver.envs(self.secrets);
        let Some(status) = start_driver(driver, &*self.store, id, &self.run_dir).await? else {
            return Ok(id);
        };
        let log = read_text(&self.run_dir.join(DRIVER_LOG)).unwrap_or_default();
        Err(RunError::DriverEnded { status, log })
    }

    fn is_new(&self) -> bool {
        self.state.phase == Phase::Created
    }

    fn has_sub_workflows(&self) -> bool {
        self.plan.workflow().nodes().any(|node| node.kind == NodeKind::ManagerLoop)
    }
}

/// Refuses a workflow with stages that ask a model, in sub-workflows too, when no model is configured.
fn check_models(bundle: &Bundle, workflow: &Workflow) -> Result<(), RunError> {
    if ServiceBuilder::new(&bundle.settings).has_model() {
        return Ok(());
    }
    check_no_model_needed(bundle, workflow, 0)
}

fn check_no_model_needed(
    bundle: &Bundle,
    workflow: &Workflow,
    depth: usize,
) -> Result<(), RunError> {
    let asking: Vec<_> = workflow.nodes().filter(|node| asks_provider(node)).collect();
    if let Some(first) = asking.first() {
        let more = match asking.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let provider = asking.iter().find_map(|node| node.attrs.text("provider"));
        return Err(RunError::NoModel {
            stages: format!("`{}`{more}", first.id),
            file: bundle.file.clone(),
            provider: provider.map(str::to_owned),
        });
    }
    let managers = workflow.nodes().filter(|node| node.kind == NodeKind::ManagerLoop);
    for node in managers.take_while(|_| depth < MAX_SUB_WORKFLOW_DEPTH) {
        let child = bundle.child(node)?;
        check_no_model_needed(&child, child.plan()?.workflow(), depth + 1)?;
    }
    Ok(())
}
