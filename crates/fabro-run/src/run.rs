//! A run: created or opened, resumed, driven.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::{Bundle, RunSettings, render_goal};
use fabro_config::GitSettings;
use fabro_engine::{
    DriveError, Handler, Inconsistent, Input, Machine, NewRun, Phase, Plan, RunEnd, RunState,
    World, begin, last_state_event, unlimited_nodes,
};
use fabro_events::{Candidate, Event, EventBody, EventSink, PauseReason, StageFailure};
use fabro_graph::{NodeKind, Workflow};
use fabro_handlers::{StatusFiles, WORKFLOW_DIR, WorkTree, read_all};
use fabro_sandbox::{Exec, Sandbox};
use fabro_store::{Batch, InboxId, Message, RunAt, RunStore, StoreError};
use fabro_types::{Diagnostic, Failure, MAX_SUB_WORKFLOW_DEPTH, RunId, RunStatus};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::answers::{
    UsedAnswers, exhausted_answers, refuse_secrets_in_bundle, refuse_secrets_in_input,
    unknown_gates, used_answers_of_family,
};
use crate::asked_models::AskedModels;
use crate::background::{DRIVER_LOG, start_driver};
use crate::control::cancel_as_requested;
use crate::family::{cancel_family, end_leftover_processes};
use crate::hooks::{About, Blocking, Deliveries, kept, runners};
use crate::lease::HeldLease;
use crate::model_names::asks_provider;
use crate::model_warnings::model_warnings;
use crate::preflight;
use crate::prepare::{PrepareError, RunDirs, prepare, prepare_dir};
use crate::restore::restored_worktrees;
use crate::resume_options::ResumeOptions;
use crate::run_id::{RUN_ID_VARIABLE, new_run_id};
use crate::run_services::RunServices;
use crate::sandbox::{self, run_sandbox};
use crate::secrets::{Variables, expand_env, without_secrets};
use crate::services::ServiceBuilder;
use crate::stage_commits::{CommitsStages, Warn};
use crate::stage_trees::{RecordsTrees, TreeSettings};
use crate::worktree::new_worktree;
use crate::{
    Gate, Member, RunError, RunSpec, SetupError, open_gates_of_family, read_text, running_members,
};

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
        let plan = match settings.on_unavailable {
            Some(_) => Arc::new(bundle.plan()?),
            None => workflow.plan,
        };
        let id = spec.id.unwrap_or_else(new_run_id);
        let own_dir = runs_dir.join(id.to_string());
        let mut warnings = unknown_gates(&settings, &bundle, plan.workflow())?;
        let mut worktree = None;
        let mut work_dir = spec.work_dir;
        if dry_run && !settings.hooks.is_empty() {
            warnings.push("this is a dry run: its hooks are not run".to_owned());
        }
        if !dry_run {
            check_models(&bundle, plan.workflow())?;
            ServiceBuilder::new(&settings).check()?;
            sandbox::check(&settings.sandbox, &work_dir).await?;
            let asked = AskedModels::of(&bundle, &plan, &settings)?;
            let unnamed = asked.name_listed(&mut settings).await?;
            bundle.settings.providers.clone_from(&settings.providers);
            warnings.extend(preflight::check(&bundle, &plan, &work_dir, unnamed)?);
            warnings.extend(model_warnings(&bundle, &plan, spec.max_cost)?);
            if settings.git.worktree == Some(true) {
                let new = new_worktree(&work_dir, id, &own_dir, &settings.git, &plan).await?;
                warnings.extend(new.warnings);
                work_dir = new.work_dir;
                worktree = Some(new.record);
            }
        }
        let workflow_dir = Value::from(spec.workflow_dir.to_string_lossy());
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
            context: [(WORKFLOW_DIR.to_owned(), workflow_dir.into())].into(),
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
        let state = RunState::try_replay(id, &events)?;
        let Some(created) = &state.created else { return Err(RunError::NotCreated { run: id }) };
        if let Phase::Ended(status, _) = state.phase {
            return Err(RunError::Ended { run: id, status });
        }
        let bundle = Bundle::load(&*store, &created.bundle)?;
        Ok(Self {
            plan: Arc::new(bundle.plan()?),
            settings: bundle.settings,
            secrets: Variables::new(),
            dry_run: created.dry_run,
            max_cost: None,
            run_dir: runs_dir.join(id.to_string()),
            store,
            lease,
            state,
            events,
            warnings,
        })
    }

    /// Checks that the log of the run, which no other process can add to now, ends at this sequence number.
    ///
    /// # Errors
    ///
    /// [`StoreError::Changed`] when it ends elsewhere.
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
            let bundle = Bundle::load(&*self.store, &created.bundle)?;
            self.warnings.extend(model_warnings(&bundle, &self.plan, options.max_cost)?);
        }
        Ok(self)
    }

    /// Checks that nothing is missing for the stages that a run that is resumed can still come to: a
    /// provider, a key, a program, turns of a model script. Nothing is executed and nothing recorded.
    ///
    /// # Errors
    ///
    /// What is missing, like the error of [`Run::create`]; or the store cannot be read.
    pub async fn check_resumed(&mut self) -> Result<(), RunError> {
        if self.is_new() || self.dry_run {
            return Ok(());
        }
        let Some(root) = self.resumed(&self.state)? else { return Ok(()) };
        let mut members = vec![root];
        for child in self.sub_workflows().await? {
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
        let unnamed = asked.name_listed(&mut self.settings).await?;
        let settings = &self.settings;
        self.warnings.extend(preflight::check_resumed(&members, settings, &work_dir, unnamed)?);
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
        let bundle = Bundle::load(&*self.store, &created.bundle)?;
        Ok(AskedModels::of(&bundle, &self.plan, &self.settings)?.text(&self.settings)?)
    }

    /// The workflow that is kept with the run, and what validation warns of in it; `None` before the run is recorded.
    ///
    /// # Errors
    ///
    /// The workflow cannot be read back.
    pub fn recorded_warnings(&self) -> Result<Option<(Bundle, Vec<Diagnostic>)>, RunError> {
        let Some(created) = &self.state.created else { return Ok(None) };
        let bundle = Bundle::load(&*self.store, &created.bundle)?;
        let warnings = bundle.warnings(&created.inputs);
        Ok(Some((bundle, warnings)))
    }

    /// The run in this state with its workflow, as it will be resumed.
    fn resumed(&self, state: &RunState) -> Result<Option<preflight::Resumed>, RunError> {
        let Some(created) = &state.created else { return Ok(None) };
        let bundle = Bundle::load(&*self.store, &created.bundle)?;
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
    pub async fn detach(self, mut driver: Command) -> Result<RunId, RunError> {
        let id = self.id();
        self.lease.release().await?;
        driver.envs(self.secrets);
        let Some(status) = start_driver(driver, &*self.store, id, &self.run_dir).await? else {
            return Ok(id);
        };
        let log = read_text(&self.run_dir.join(DRIVER_LOG)).unwrap_or_default();
        Err(RunError::DriverEnded { status, log })
    }

    /// Drives the run until it ends, pauses or is interrupted. If the future is dropped, the run is
    /// interrupted at once.
    ///
    /// # Errors
    ///
    /// A service cannot be built, something cannot be recorded, or another process has taken the
    /// run over. What was committed stands, and the run can be resumed.
    pub async fn drive(mut self, services: RunServices) -> Result<DriveResult, RunError> {
        let warn = Arc::clone(&services.warn);
        let store = Arc::clone(&self.store);
        let id = self.id();
        let result = self.drive_with_lease(services).await;
        if let Err(error) = self.lease.release().await {
            // What the run came to is recorded.
            warn(&format!("the run stays reserved until this program ends: {error}"));
        }
        match result? {
            DriveResult::Paused { .. } if cancel_as_requested(&*store, id, &*warn).await? => {
                Ok(DriveResult::Canceled)
            }
            result => Ok(result),
        }
    }

    async fn drive_with_lease(&mut self, services: RunServices) -> Result<DriveResult, RunError> {
        if !self.dry_run {
            self.settings.env = expand_env(&self.settings.env)?;
        }
        let clock = Arc::clone(&services.clock);
        let warn = Arc::clone(&services.warn);
        let lease_lost = self.lease.lost().clone();
        let stop = services.interrupt.child_token();
        let stop_when_lost = async {
            lease_lost.cancelled().await;
            stop.cancel();
            std::future::pending().await
        };
        let services = RunServices { interrupt: stop.clone(), ..services };
        let end = tokio::select! {
            end = self.drive_with_retries(services) => end?,
            end = stop_when_lost => end,
        };
        let store = &*self.store;
        let id = self.id();
        Ok(match end {
            RunEnd::Over(status, failure) => {
                let removed =
                    sandbox::remove_state(&self.settings.sandbox, id, &self.run_dir).await;
                if let Err(error) = removed {
                    warn(&error.to_string());
                }
                if self.has_sub_workflows() {
                    // A canceled stage leaves its sub-workflow as after an interruption.
                    let reason = "the run it is part of has ended";
                    cancel_family(store, self.lease.lease(), id, clock.now_ms(), reason).await?;
                }
                let last = last_state_event(store, id).await?.map(|event| event.entry.body);
                let causes = last.as_ref().map(|last| last.causes().to_vec()).unwrap_or_default();
                match (status, failure) {
                    (RunStatus::Succeeded, _) => DriveResult::Succeeded,
                    (RunStatus::PartiallySucceeded, _) => DriveResult::PartiallySucceeded(causes),
                    (RunStatus::Failed, Some(failure)) => {
                        let cause = causes.into_iter().next().map(Box::new);
                        let edges = match last {
                            Some(EventBody::RunFailed { candidates, .. }) => candidates,
                            _ => Vec::new(),
                        };
                        DriveResult::Failed { failure, cause, edges }
                    }
                    (RunStatus::Canceled, _) => DriveResult::Canceled,
                    (status, _) => {
                        let what = format!("the run ended, and is {status}");
                        return Err(Inconsistent::new(what).into());
                    }
                }
            }
            RunEnd::Paused(reason) => {
                let gates = open_gates_of_family(store, id).await?;
                let unavailable = match reason {
                    PauseReason::Unavailable => causes(store, id).await?,
                    _ => Vec::new(),
                };
                DriveResult::Paused { reason, gates, unavailable }
            }
            RunEnd::Stopped if lease_lost.is_cancelled() => {
                return Err(StoreError::LeaseLost { run: id }.into());
            }
            RunEnd::Stopped => DriveResult::Interrupted,
        })
    }

    /// Drives the stages. When no model or agent is available, and the settings have a time to
    /// retry after, it waits and retries.
    async fn drive_with_retries(&mut self, services: RunServices) -> Result<RunEnd, RunError> {
        loop {
            let end = self.drive_stages(services.clone()).await?;
            let wait = self.settings.retry_unavailable;
            let (RunEnd::Paused(PauseReason::Unavailable), Some(wait)) = (&end, wait) else {
                return Ok(end);
            };
            for stage in causes(&*self.store, self.id()).await? {
                (services.warn)(&stage.to_string());
            }
            (services.warn)(&format!(
                "no model or agent is available; the run retries in {}",
                duration_text(wait)
            ));
            if !self.wait_to_retry(wait, &services.interrupt).await? {
                return Ok(RunEnd::Stopped);
            }
            self.events = read_all(&*self.store, self.id()).await?;
            self.state = RunState::try_replay(self.id(), &self.events)?;
            self.max_cost = None;
        }
    }

    /// Waits for this time, or until a message arrives; false when it was interrupted.
    async fn wait_to_retry(
        &self,
        wait: Duration,
        interrupt: &CancellationToken,
    ) -> Result<bool, RunError> {
        let mut late = std::pin::pin!(tokio::time::sleep(wait));
        let mut period = tokio::time::interval(INBOX_PERIOD);
        // An answer that no gate took before the pause is not taken after it either.
        let before = self.messages(|message| matches!(message, Message::Answer { .. })).await?;
        loop {
            tokio::select! {
                biased;
                () = interrupt.cancelled() => return Ok(false),
                () = &mut late => return Ok(true),
                _ = period.tick() => {
                    let decides = |message: &Message| {
                        matches!(message, Message::Answer { .. } | Message::Cancel { .. })
                    };
                    let now = self.messages(decides).await?;
                    if now.iter().any(|message| !before.contains(message)) {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Such messages in the inboxes of the run and its sub-workflows.
    async fn messages(
        &self,
        is_such: impl Fn(&Message) -> bool,
    ) -> Result<Vec<(RunId, InboxId)>, RunError> {
        let mut messages = Vec::new();
        for member in self.store.family(self.id()).await? {
            let pending = self.store.pending(member).await?.into_iter();
            let such = pending.filter(|(_, message)| is_such(message));
            messages.extend(such.map(|(id, _)| (member, id)));
        }
        Ok(messages)
    }

    /// Ends what a dead driver left running, runs the preparation steps and then the stages.
    async fn drive_stages(&mut self, services: RunServices) -> Result<RunEnd, RunError> {
        let id = self.id();
        let run_dir = self.run_dir.clone();
        let all_runs = run_dir.parent().map(Path::to_owned).unwrap_or_default();
        fabro_sandbox::record_processes(RUN_ID_VARIABLE, &all_runs);
        let warn = Arc::clone(&services.warn);
        let files = Arc::new(StatusFiles::new(all_runs, move |text| warn(text)));
        let hooks = self.hooks(&services)?;
        let mut sinks: Vec<Arc<dyn EventSink>> =
            vec![Arc::clone(&files) as _, Arc::clone(&services.sink)];
        sinks.extend(hooks.deliveries.clone().map(|it| it as _));
        let sink: Arc<dyn EventSink> = Arc::new(sinks);
        if !self.is_new() || prepare_dir(&run_dir).exists() {
            end_leftover_processes(&*self.store, id).await?;
            files.catch_up(&self.events);
            if let Some(deliveries) = &hooks.deliveries {
                deliveries.catch_up(&self.events);
            }
        }
        let git = &self.settings.git;
        let store = &*self.store;
        let warn = &services.warn;
        let worktrees = restored_worktrees(store, &self.state, &self.events, git, warn).await?;
        let used = self.used_answers().await?;
        // Not before its working directory is there.
        let sandbox = self.sandbox()?;
        if let Some(sandbox) = &sandbox {
            tokio::select! {
                biased;
                () = services.interrupt.cancelled() => return Ok(RunEnd::Stopped),
                started = sandbox::start(&self.settings.sandbox, sandbox) => started?,
            }
        }
        let builder = ServiceBuilder::new(&self.settings).dry_run(self.dry_run);
        let builder = builder.in_sandbox(sandbox.as_ref());
        let guard = hooks.blocking.clone().map(|it| it as _);
        let registry = builder.registry(id, &used, &services, Arc::clone(&sink), guard)?;
        let mut handler: Arc<dyn Handler> = Arc::clone(&registry) as _;
        if let Some(worktrees) = worktrees {
            handler = Arc::new(CommitsStages { handler, worktrees, tree: registry.work_tree() });
            registry.run_sub_workflows_by(&handler);
        } else if !self.dry_run && self.settings.git.diff != Some(false) {
            handler = self.recording(handler, registry.work_tree(), builder, warn);
            registry.run_sub_workflows_by(&handler);
        }
        // The log is not needed any more, and may be large.
        self.events = Vec::new();
        let blocking = hooks.blocking.as_deref();
        let exec = builder.exec();
        let interrupt = &services.interrupt;
        let Some(first) = self.first_input(&exec, &run_dir, blocking, interrupt).await? else {
            return Ok(RunEnd::Stopped);
        };
        let state = std::mem::replace(&mut self.state, RunState::new(id));
        let machine = Machine::new(Arc::clone(&self.plan), state);
        let world = World {
            store: self.lease.store(),
            handler,
            sink,
            clock: services.clock,
            run_dir,
            stop: services.interrupt,
        };
        let end = fabro_engine::drive(machine, first, world).await;
        // Those of the last stages: this process may exit next.
        fabro_sandbox::marks_ended().await;
        if let Some(deliveries) = hooks.deliveries {
            deliveries.finish(matches!(end, Ok(RunEnd::Over(..)))).await;
        }
        Ok(end?)
    }

    /// Records what stages change in the user's work tree.
    fn recording(
        &self,
        handler: Arc<dyn Handler>,
        tree: Arc<WorkTree>,
        builder: ServiceBuilder<'_>,
        warn: &Warn,
    ) -> Arc<dyn Handler> {
        let run = self.id();
        Arc::new(RecordsTrees::new(TreeSettings {
            handler,
            run,
            run_dir: &self.run_dir,
            exclude: self.settings.git.exclude.as_deref().unwrap_or_default(),
            marker: (RUN_ID_VARIABLE, &run.to_string()),
            tree,
            permissions: self.settings.agent.permissions,
            redactor: builder.redactor(),
            warn: Arc::clone(warn),
        }))
    }

    /// What confines its scripts and agents. A dry run has none.
    fn sandbox(&self) -> Result<Option<Arc<Sandbox>>, SetupError> {
        let Some(created) = self.state.created.as_ref().filter(|_| !self.dry_run) else {
            return Ok(None);
        };
        let work_dir = Path::new(&created.work_dir);
        run_sandbox(&self.settings.sandbox, self.id(), work_dir, &self.run_dir)
    }

    async fn used_answers(&self) -> Result<UsedAnswers, StoreError> {
        if self.settings.answers.is_none() || self.is_new() {
            return Ok(UsedAnswers::new());
        }
        used_answers_of_family(&*self.store, self.id(), &self.events).await
    }

    /// The hooks of the run. A dry run has none.
    fn hooks(&self, services: &RunServices) -> Result<Hooks, SetupError> {
        let created = self.state.created.as_ref();
        let Some(created) = created.filter(|_| !self.dry_run && !self.settings.hooks.is_empty())
        else {
            return Ok(Hooks::default());
        };
        let redactor = ServiceBuilder::new(&self.settings).redactor();
        let all = runners(&self.settings, &redactor)?;
        let about = About::new(self.id(), created);
        let warn = kept(&self.run_dir, Arc::clone(&services.warn));
        let stop = &services.interrupt;
        let deliveries = Deliveries::start(&all, &about, &self.run_dir, &warn, stop);
        let blocking = Blocking::new(&all, about, warn);
        Ok(Hooks { blocking, deliveries })
    }

    /// The input that the machine starts with, after the preparation steps of a new run; `None`
    /// when they were interrupted.
    async fn first_input(
        &self,
        exec: &dyn Exec,
        run_dir: &Path,
        blocking: Option<&Blocking>,
        interrupt: &CancellationToken,
    ) -> Result<Option<Input>, RunError> {
        if !self.is_new() {
            return Ok(Some(Input::Resume { max_cost: self.max_cost }));
        }
        if self.dry_run {
            return Ok(Some(Input::Start));
        }
        if let (Some(blocking), Some(created)) = (blocking, &self.state.created) {
            let asked = blocking.run_start(created, interrupt).await;
            if interrupt.is_cancelled() {
                return Ok(None);
            }
            if let Err(failure) = asked {
                return Ok(Some(Input::Abort { failure }));
            }
        }
        let created = self.state.created.as_deref();
        let workflow = created.and_then(|run| run.context.get(WORKFLOW_DIR)?.as_str());
        let dirs = RunDirs {
            run: run_dir,
            work: Path::new(created.map_or("", |run| &run.work_dir)),
            workflow: workflow.unwrap_or_default(),
        };
        let redactor = ServiceBuilder::new(&self.settings).redactor();
        let prepared = prepare(exec, &self.settings, self.id(), dirs, &redactor, interrupt);
        match prepared.await {
            Ok(()) => Ok(Some(Input::Start)),
            Err(PrepareError::Failed(failure)) => Ok(Some(Input::Abort { failure })),
            Err(PrepareError::Interrupted) => Ok(None),
            Err(PrepareError::CannotRecord { message }) => {
                Err(DriveError::Record { stage: "prepare".into(), message }.into())
            }
        }
    }

    fn is_new(&self) -> bool {
        self.state.phase == Phase::Created
    }

    fn has_sub_workflows(&self) -> bool {
        self.plan.workflow().nodes().any(|node| node.kind == NodeKind::ManagerLoop)
    }
}

/// What the hooks of a run take part in.
#[derive(Default)]
struct Hooks {
    blocking: Option<Arc<Blocking>>,
    deliveries: Option<Arc<Deliveries>>,
}

/// The stage failures that the end of a run, or its pause, names.
async fn causes(store: &dyn RunStore, run: RunId) -> Result<Vec<StageFailure>, StoreError> {
    let last = last_state_event(store, run).await?;
    Ok(last.map(|event| event.entry.body.causes().to_vec()).unwrap_or_default())
}

/// A time in the largest unit without a fraction, as settings have it: `15m`.
fn duration_text(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ms}ms"), |(unit, name)| format!("{}{name}", ms / unit))
}

/// How often messages are looked for while a run waits to retry.
const INBOX_PERIOD: Duration = Duration::from_millis(500);

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
    let mut asking = workflow.nodes().filter(|node| asks_provider(node)).peekable();
    if asking.peek().is_some() {
        let provider = asking.find_map(|node| node.attrs.text("provider")).map(str::to_owned);
        return Err(RunError::NoModel { file: bundle.file.clone(), provider });
    }
    let managers = workflow.nodes().filter(|node| node.kind == NodeKind::ManagerLoop);
    for node in managers.take_while(|_| depth < MAX_SUB_WORKFLOW_DEPTH) {
        let child = bundle.child(node)?;
        check_no_model_needed(&child, child.plan()?.workflow(), depth + 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_settings_have_them() {
        let check = |ms, expect| assert_eq!(duration_text(Duration::from_millis(ms)), expect);
        check(900_000, "15m");
        check(7_200_000, "2h");
        check(86_400_000, "1d");
        check(90_000, "90s");
        check(1_500, "1500ms");
        check(0, "0ms");
    }
}
