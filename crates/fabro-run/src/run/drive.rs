//! Driving a run: services, preparation, stages, waiting to retry.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fabro_engine::{
    DriveError, Handler, Inconsistent, Input, Machine, RunEnd, RunState, World, last_state_event,
};
use fabro_events::{Event, EventBody, EventSink, PauseReason, StageFailure};
use fabro_handlers::{StatusFiles, WORKFLOW_DIR, WorkTree, read_all};
use fabro_sandbox::{Exec, Sandbox};
use fabro_store::{Batch, InboxId, Message, RunStore, StoreError};
use fabro_types::{Failure, FailureClass, RunId, RunStatus};
use tokio_util::sync::CancellationToken;

use crate::answers::{UsedAnswers, used_answers_of_family};
use crate::concurrency::{POLL_PERIOD, Slots};
use crate::control::cancel_as_requested;
use crate::family::{cancel_family, end_leftover_processes};
use crate::hooks::{About, Blocking, Deliveries, kept, runners};
use crate::lease::HeldLease;
use crate::ownership::give_to_store_owner;
use crate::prepare::{PrepareError, RunDirs, prepare, prepare_dir};
use crate::restore::restored_worktrees;
use crate::run_id::RUN_ID_VARIABLE;
use crate::run_services::RunServices;
use crate::sandbox::{self, run_sandbox};
use crate::secrets::expand_env;
use crate::services::ServiceBuilder;
use crate::stage_commits::{CommitsStages, Warn};
use crate::stage_trees::{RecordsTrees, TreeSettings};
use crate::{RunError, SetupError, open_gates_of_family};

use super::{DriveResult, Run};

/// The minimum delay of an automatic retry; shorter delays would fill the log.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);

impl Run {
    /// Drives the run until it ends, pauses or is interrupted. If the future is dropped, the run is
    /// interrupted at once.
    ///
    /// # Errors
    ///
    /// A service cannot be built, something cannot be recorded, or another process has taken the
    /// run over. What was committed stands, and the run can be resumed.
    pub async fn drive(mut self, services: RunServices) -> Result<DriveResult, RunError> {
        if !self.dry_run {
            self.settings.env = expand_env(&self.settings.env)?;
        }
        let mut before = Vec::new();
        loop {
            let result = self.drive_and_release(services.clone()).await?;
            let DriveResult::Paused { reason: PauseReason::Human, .. } = result else {
                return Ok(result);
            };
            // Whoever answered while this process held the lease has started no driver.
            let mut answered = open_gates_of_family(&*self.store, self.id()).await?;
            answered.retain(|gate| gate.pending_answer.is_some());
            if answered.iter().all(|gate| before.contains(gate))
                || services.interrupt.is_cancelled()
            {
                return Ok(result);
            }
            before = answered;
            self.lease = match HeldLease::acquire(&self.store, self.id()).await {
                Err(StoreError::Driven { .. }) => return Ok(result),
                lease => lease?,
            };
            self.read_log().await?;
        }
    }

    /// Reads the log again, to drive on from its end.
    async fn read_log(&mut self) -> Result<(), RunError> {
        self.events = read_all(&*self.store, self.id()).await?;
        self.state = RunState::try_replay(self.id(), &self.events)?;
        self.max_cost = None;
        Ok(())
    }

    async fn drive_and_release(&mut self, services: RunServices) -> Result<DriveResult, RunError> {
        let warn = Arc::clone(&services.warn);
        let store = Arc::clone(&self.store);
        let id = self.id();
        let result = match self.acquire_slot(&services).await {
            Ok(true) => self.drive_with_lease(services).await,
            Ok(false) => Ok(DriveResult::Interrupted),
            Err(error) => Err(error),
        };
        // `runs/ID` is two levels below the store.
        if let Some(store) = self.run_dir.ancestors().nth(2)
            && let Err(error) = give_to_store_owner(store)
        {
            warn(&format!("cannot change the owner of files in {}: {error}", store.display()));
        }
        for lease in [Some(&mut self.lease), self.slot.take().as_mut()].into_iter().flatten() {
            if let Err(error) = lease.release().await {
                // The end of the run is already recorded.
                warn(&format!(
                    "could not release the lease; it expires with this process: {error}"
                ));
            }
        }
        match result? {
            DriveResult::Paused { .. } | DriveResult::Interrupted
                if cancel_as_requested(&*store, id, &*warn).await? =>
            {
                Ok(DriveResult::Canceled)
            }
            result => Ok(result),
        }
    }

    /// Waits for a concurrency slot; false when the run was interrupted or canceled meanwhile.
    async fn acquire_slot(&mut self, services: &RunServices) -> Result<bool, RunError> {
        let Some(created) = self.state.created.as_ref().filter(|_| !self.dry_run) else {
            return Ok(true);
        };
        let settings = self.settings.concurrency.as_ref();
        let slots = Slots::of(settings, self.plan.workflow().name(), &created.inputs)?;
        let Some(slots) = slots.filter(|_| self.slot.is_none()) else { return Ok(true) };
        let mut has_warned = false;
        loop {
            if let Some(slot) = slots.take(&self.store).await? {
                self.slot = Some(slot);
                return Ok(true);
            }
            let is_cancel = |message: &Message| matches!(message, Message::Cancel { .. });
            if !self.messages(is_cancel).await?.is_empty() {
                return Ok(false);
            }
            if !std::mem::replace(&mut has_warned, true) {
                let holders = slots.holders(&*self.store).await?;
                let names: Vec<_> = holders.iter().map(|run| format!("run {run}")).collect();
                let names = if names.is_empty() { "another run".into() } else { names.join(", ") };
                let key = &slots.key;
                (services.warn)(&format!("waiting for {names} with the same key `{key}`"));
            }
            tokio::select! {
                () = services.interrupt.cancelled() => return Ok(false),
                () = tokio::time::sleep(POLL_PERIOD) => {}
            }
        }
    }

    async fn drive_with_lease(&mut self, services: RunServices) -> Result<DriveResult, RunError> {
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
                if !self.dry_run
                    && let Err(error) =
                        sandbox::remove_state(&self.settings.sandbox, id, &self.run_dir).await
                {
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
                let driver = self.lease.driver().await?;
                return Err(StoreError::LeaseLost { run: id, pid: driver.map(|it| it.pid) }.into());
            }
            RunEnd::Stopped => DriveResult::Interrupted,
        })
    }

    /// Drives the stages. When no model or agent is available, and the settings have a time to
    /// retry after, it waits and retries.
    async fn drive_with_retries(&mut self, services: RunServices) -> Result<RunEnd, RunError> {
        loop {
            let end = self.drive_stages(services.clone()).await?;
            let wait = self.settings.retry_unavailable.map(|wait| wait.max(SHORTEST_RETRY));
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
            self.read_log().await?;
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
                started = sandbox::start(&self.settings.sandbox, sandbox, &run_dir) => {
                    started?.lines().for_each(|line| warn(line));
                }
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
        let time_left =
            self.settings.max_time.map(|max| (max, max.saturating_sub(driven_time(&self.events))));
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
        let stop = services.interrupt.child_token();
        let world = World {
            store: self.lease.store(),
            handler,
            sink: Arc::clone(&sink),
            clock: Arc::clone(&services.clock),
            run_dir,
            stop: stop.clone(),
        };
        let mut driven = Box::pin(fabro_engine::drive(machine, first, world));
        let end = match time_left {
            None => driven.await,
            Some((max, left)) => tokio::select! {
                end = &mut driven => end,
                () = tokio::time::sleep(left) => {
                    stop.cancel();
                    match driven.await? {
                        RunEnd::Stopped if !services.interrupt.is_cancelled() => {
                            Ok(self.out_of_time(max, services.clock.now_ms(), &*sink).await?)
                        }
                        end => Ok(end),
                    }
                }
            },
        };
        // Those of the last stages: this process may exit next.
        fabro_sandbox::marks_ended().await;
        if let Some(deliveries) = hooks.deliveries {
            deliveries.finish(matches!(end, Ok(RunEnd::Over(..)))).await;
        }
        Ok(end?)
    }

    /// Ends the run as failed because it reached its `max_time`.
    async fn out_of_time(
        &self,
        max: Duration,
        now_ms: i64,
        sink: &dyn EventSink,
    ) -> Result<RunEnd, RunError> {
        let id = self.id();
        let state = RunState::try_replay(id, &read_all(&*self.store, id).await?)?;
        let mut machine = Machine::new(Arc::clone(&self.plan), state);
        let message = format!("the run reached its max_time ({})", duration_text(max));
        let failure = Failure {
            details: Some(
                "a retry continues where the run stopped, with a new max_time".to_owned(),
            ),
            ..Failure::new(FailureClass::BudgetExhausted, message)
        };
        machine.handle(now_ms, Input::Abort { failure: failure.clone() });
        let commit = machine.take_commit();
        let last = machine.state().last_seq - commit.events.len() as u64;
        self.lease.store().append(id, last, &Batch::of(&commit.events)).await?;
        commit.events.iter().for_each(|event| sink.event(event));
        Ok(RunEnd::Over(RunStatus::Failed, Some(failure)))
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

/// The time that the run was driven so far, without the time when it was paused or had no driver. A fork,
/// a rewind or a retry resets it.
fn driven_time(events: &[Event]) -> Duration {
    let mut driven_ms = 0;
    let mut last: Option<&Event> = None;
    for event in events {
        let body = &event.entry.body;
        if let Some(last) = last {
            let is_paused = matches!(last.entry.body, EventBody::RunPaused { .. });
            let begins = matches!(body, EventBody::RunStarted {} | EventBody::RunResumed { .. });
            if !is_paused && !begins {
                let set_ms = event.entry.clock_set_ms.unwrap_or_default();
                let passed_ms = event.ts_ms.saturating_sub(last.ts_ms).saturating_sub(set_ms);
                driven_ms += u64::try_from(passed_ms).unwrap_or_default();
            }
        }
        if matches!(body, EventBody::CheckpointForked(_)) {
            driven_ms = 0;
        }
        last = Some(event);
    }
    Duration::from_millis(driven_ms)
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
