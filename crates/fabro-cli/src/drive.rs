//! Driving a run from the command line: progress, signals, and the exit code.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;

use fabro_engine::{checkpoint, last_state_event, read_all, stage_dir};
use fabro_events::{Candidate, Event, EventBody, PauseReason, StageFailure};
use fabro_gate::{Interviewer, Unavailable};
use fabro_inspect::{Cause, CostSum, Kinds, changes, discarded_at};
use fabro_run::{
    DriveResult, Gate, Run, RunError, RunServices, gate_names, is_driven, open_gates_of_family,
};
use fabro_store::{Runs as _, SqliteStore};
use fabro_terminal::{Mode, Progress, StagePlace, TerminalInterviewer, one_line};
use fabro_types::{Failure, FailureClass, RunId, clean};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::metadata;
use crate::commands::output_tail::last_lines;
use crate::commands::run_lines::questions;
use crate::commands::trace;
use crate::exit::Exit;
use crate::global::{Global, logins_dir, stderr_width, wrapped, wrapped_lines};
use crate::output;
use crate::report::driving;

/// What a command that drives a run shows.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct ShownArgs {
    /// Print every event to stdout as it is committed, one JSON object a line
    #[arg(long)]
    pub json: bool,

    /// Print only errors and what a person has to do
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

/// Drives a run until it ends, pauses, or is interrupted.
pub async fn drive(run: Run, shown: ShownArgs, global: &Global) -> anyhow::Result<Exit> {
    let id = run.id();
    let mode = mode(shown, global);
    let progress = Progress::new(mode, global.paint_stderr(), fabro_run::now_ms);
    let follow = global.command(&format!("logs {id} -f"));
    progress.announce(wrapped(&format!("run {id} · {follow}")));
    let models = run.models()?;
    let asks_models = models.is_some();
    if let Some(models) = models {
        progress.announce(wrapped(&format!("models: {}", clean(&models))));
    }
    if mode == Mode::Live {
        let runs_dir = global.store_to_read()?.runs_dir().clone();
        progress.show_output(Box::new(move |at: &StagePlace| {
            stage_dir(&runs_dir.join(at.run.to_string()), at.rank, &at.node, at.visit)
        }));
    }
    progress.watch_visits(run.unlimited_nodes());
    progress.recall(&checkpoint::effective(run.events()));
    let has_worktree = changes(run.events()).is_some_and(|changes| changes.worktree.is_some());
    let is_dry_run = run.events().iter().any(|event| match &event.entry.body {
        EventBody::RunCreated(created) => created.dry_run,
        _ => false,
    });
    let keeps_metadata = run.git().metadata == Some(true);
    for member in run.sub_workflows().await? {
        progress.recall_child(&member.events);
    }
    let waited = waiting_before(&run, global).await?;
    let warnings = Arc::clone(&progress);
    let interrupt = CancellationToken::new();
    let services = RunServices {
        sink: Arc::clone(&progress) as _,
        warn: Arc::new(move |text| warnings.warn(text)),
        interviewer: interviewer(&progress),
        interrupt: interrupt.clone(),
        logins: logins_dir(),
        program: std::env::current_exe().ok(),
        ..RunServices::default()
    };
    let result = tokio::select! {
        result = run.drive(services) => result,
        () = interrupted(&interrupt, id, &progress, global) => Ok(DriveResult::Interrupted),
    };
    // What cannot be shown at the end does not change how the run ended.
    let mut unshown = Vec::new();
    if asks_models && result.is_ok() {
        match spent(id, global).await {
            Ok((tokens, cost_usd)) => progress.set_spent(tokens, cost_usd),
            Err(error) => unshown.push(error.to_string()),
        }
    }
    // Nothing was shown yet when a service cannot be built.
    if !matches!(result, Err(RunError::Setup(_))) {
        progress.finish();
    }
    let result = result.map_err(|error| driving(error, id, global))?;
    if let Some(error) = progress.take_write_error() {
        return Err(output::unwritten(&error));
    }
    if keeps_metadata {
        let kept = metadata::keep(&global.store_to_read()?, id).await;
        global.warn(kept.map_or_else(|error| vec![error.to_string()], |(_, damage)| damage));
    }
    if mode != Mode::Json {
        if mode != Mode::Quiet {
            output::stderr(&unshown_questions(&result, &waited, global));
        }
        output::stderr(&wrapped_lines(&message(&result, id, global)));
        if !std::io::stderr().is_terminal()
            && let Some(cause) = first_cause(&result)
        {
            show(last_lines(id, cause, global).await, &mut unshown);
        }
    }
    // It reaches nothing outside, and a collector may be named by the settings of a project.
    if !is_dry_run {
        trace::send_at_end(id, global).await;
    }
    if matches!(mode, Mode::Live | Mode::Plain) && has_worktree {
        show(branch_text(id, global).await, &mut unshown);
    }
    if matches!(mode, Mode::Live | Mode::Plain) {
        show(overridden_text(id, global).await, &mut unshown);
    }
    global.warn(unshown);
    Ok(match result {
        DriveResult::Succeeded => Exit::SUCCEEDED,
        DriveResult::PartiallySucceeded(_) | DriveResult::Failed { .. } | DriveResult::Canceled => {
            Exit::FAILED
        }
        DriveResult::Paused { .. } => Exit::PAUSED,
        DriveResult::Interrupted => Exit::INTERRUPTED,
    })
}

/// The first cause of a run that did not succeed.
fn first_cause(result: &DriveResult) -> Option<&StageFailure> {
    match result {
        DriveResult::Failed { cause, .. } => cause.as_deref(),
        DriveResult::PartiallySucceeded(unhandled) => unhandled.first(),
        _ => None,
    }
}

/// The tokens and US dollars that a run used, including sub-workflows, failed attempts and canceled branches.
async fn spent(run: RunId, global: &Global) -> anyhow::Result<(u64, f64)> {
    let store = global.store_to_read()?;
    let mut logs = Vec::new();
    for member in store.family(run).await? {
        logs.push(read_all(&store, member).await?);
    }
    let mut sum = CostSum::default();
    sum.add(run, &logs, &|_: &str| false);
    let total = sum.finish().total;
    let Kinds { input, cached, cache_write, output, reasoning } = &total.kinds;
    let tokens = [input, cached, cache_write, output, reasoning].map(|kind| kind.tokens);
    Ok((tokens.iter().sum(), total.cost_usd.unwrap_or_default()))
}

/// The names of the gates that wait since before this process drives the run.
async fn waiting_before(run: &Run, global: &Global) -> anyhow::Result<Vec<String>> {
    let is_paused = |event: &Event| matches!(event.entry.body, EventBody::RunPaused { .. });
    if !run.events().iter().any(is_paused) {
        return Ok(Vec::new());
    }
    Ok(gate_names(&open_gates_of_family(&global.store_to_read()?, run.id()).await?))
}

/// The questions of gates that this process has not shown in full: gates that already waited at its
/// start and, without a prompt, gates with texts that the line of the question omits.
fn unshown_questions(result: &DriveResult, waited: &[String], global: &Global) -> String {
    let DriveResult::Paused { gates, .. } = result else { return String::new() };
    let names = gate_names(gates);
    let has_texts = |gate: &Gate| !gate.show.is_empty() || !gate.failures.is_empty();
    let is_unshown = |(gate, name): &(&Gate, &String)| {
        waited.contains(name) || !has_prompts() && has_texts(gate)
    };
    let unshown = gates.iter().zip(&names).filter(is_unshown);
    let unshown: Vec<Gate> = unshown.map(|(gate, _)| gate.clone()).collect();
    questions(&unshown, stderr_width(), global.paint_stderr())
}

pub(crate) fn mode(shown: ShownArgs, global: &Global) -> Mode {
    match (shown.json, shown.quiet) {
        (true, _) => Mode::Json,
        (_, true) => Mode::Quiet,
        _ if global.is_live() => Mode::Live,
        _ => Mode::Plain,
    }
}

fn has_prompts() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Gates are asked on the terminal, if there is one.
fn interviewer(progress: &Arc<Progress>) -> Arc<dyn Interviewer> {
    if !has_prompts() {
        return Arc::new(Unavailable);
    }
    Arc::new(TerminalInterviewer::new().suspending(Arc::clone(progress)))
}

/// Waits for signals: the first one interrupts the run, the second one ends the wait for it.
async fn interrupted(
    interrupt: &CancellationToken,
    run: RunId,
    progress: &Progress,
    global: &Global,
) {
    let stop = SignalKind::from_raw(Signal::TSTP.as_raw());
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), stop];
    let [Ok(mut int), Ok(mut term), Ok(mut hup), Ok(mut stop)] = kinds.map(signal) else {
        // Without signal handlers there is nothing to wait for.
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
            _ = stop.recv() => {
                if let Err(error) = progress.stop_process() {
                    progress.warn(&format!("the process cannot be stopped: {error}"));
                }
                continue;
            }
        }
        if interrupt.is_cancelled() {
            return;
        }
        interrupt.cancel();
        let resume = global.command(&format!("resume {run}"));
        let text =
            format!("stopping; press Ctrl-C again to stop immediately. Continue with: {resume}");
        progress.interject(&format!("\n{}\n", wrapped(&text)));
    }
}

fn show(text: anyhow::Result<String>, unshown: &mut Vec<String>) {
    match text {
        Ok(text) => output::stderr(&wrapped_lines(&text)),
        Err(error) => unshown.push(error.to_string()),
    }
}

/// The failed checks of an ended run that a person overrode; empty if there are none.
async fn overridden_text(run: RunId, global: &Global) -> anyhow::Result<String> {
    let last = last_state_event(&global.store_to_read()?, run).await?;
    let checks = last.iter().flat_map(|last| last.entry.body.overridden());
    let lines =
        checks.map(|check| format!("overridden: {}\n", one_line(&check.to_string(), SHOWN)));
    Ok(lines.collect::<Vec<_>>().concat())
}

/// Where the changes of a run with a git worktree are, and what to do with them; empty when there are none.
async fn branch_text(run: RunId, global: &Global) -> anyhow::Result<String> {
    let events = read_all(&global.store_to_read()?, run).await?;
    let changes = changes(&events).filter(|changes| !changes.stages.is_empty());
    let Some(worktree) = changes.and_then(|changes| changes.worktree) else {
        return Ok(String::new());
    };
    let branch = &worktree.branch;
    let diff = global.command(&format!("diff {run}"));
    if let Some((gate, label)) = discarded_at(&events) {
        let prune = global.command("prune --force");
        return Ok(format!(
            "Its changes were discarded at {} (\"{}\"). They stay on the branch {branch} until `{prune}` removes it.\nSee them: {diff}\n",
            clean(&gate),
            one_line(&label, CONDITION),
        ));
    }
    Ok(format!(
        "Its changes are on the branch {branch}. See them: {diff}\nTake them over: git merge {branch}\n"
    ))
}

/// What to do next; empty after success.
fn message(result: &DriveResult, run: RunId, global: &Global) -> String {
    match result {
        DriveResult::Succeeded => String::new(),
        DriveResult::PartiallySucceeded(unhandled) => partly_succeeded(unhandled, run, global),
        DriveResult::Failed { failure, cause, edges } => {
            let mut text = failed(failure, cause.as_deref(), edges, run, global);
            if failure.class == FailureClass::CompilationLoop {
                text.push_str(
                    "If the loop needs more turns: raise `max_visits` of the node, or `max_node_visits` of the graph\n",
                );
            }
            text
        }
        DriveResult::Canceled => format!("run {run} was canceled\n"),
        DriveResult::Paused { reason: PauseReason::Budget, gates, .. } => {
            let resume = global.command(&format!("resume {run} --max-cost USD"));
            let text = format!(
                "run {run} is paused. Continue with: {resume} (in place of the limits of dollars and tokens)\n"
            );
            text + &waiting_too(run, gates, global)
        }
        DriveResult::Paused { reason: PauseReason::Unavailable, gates, unavailable } => {
            let resume = global.command(&format!("resume {run}"));
            let mut text =
                format!("run {run} is paused, because no model or agent is available:\n");
            for stage in unavailable.iter().take(LISTED) {
                let _ = writeln!(text, "  {}", clean(&stage.to_string()));
                if let Some(remedy) = &stage.failure.unavailable {
                    let _ = writeln!(text, "    to fix it: {}", clean(remedy));
                }
            }
            if unavailable.len() > LISTED {
                let _ = writeln!(text, "  … and {} more", unavailable.len() - LISTED);
            }
            let refresh = global.command(&format!("resume {run} --refresh-providers"));
            let _ = writeln!(
                text,
                "Retry with: {resume}\nAfter a change of [providers], [models] or [run.model] in the settings: {refresh}\n\
                 With another model for stages that name none: {resume} --model NAME"
            );
            text + &waiting_too(run, gates, global)
        }
        DriveResult::Paused { gates, .. } => {
            let answer = answer_command(run, gates, global);
            let names = gate_names(gates).join(", ");
            let at = if names.is_empty() { names } else { format!(" at {names}") };
            format!("run {run} is paused{at}. Continue with: {answer}\n")
        }
        DriveResult::Interrupted => {
            let resume = global.command(&format!("resume {run}"));
            format!("run {run} was interrupted. Continue with: {resume}\n")
        }
    }
}

/// Whether a stage could not leave because of its conditions; `on_failure=stop` ends a run at an edge that holds.
fn none_holds(edges: &[Candidate]) -> bool {
    !edges.is_empty() && edges.iter().all(|edge| !edge.holds)
}

/// The first conditions of edges, each with its target.
fn conditions(edges: &[Candidate]) -> String {
    let mut text = String::new();
    for edge in edges.iter().take(LISTED) {
        if let Some(condition) = &edge.condition {
            let start = if text.is_empty() { ": " } else { ", " };
            let condition = one_line(condition, CONDITION);
            let _ = write!(text, "{start}{condition} → {}", clean(&edge.to));
        }
    }
    text
}

/// How many characters of a condition are shown.
const CONDITION: usize = 60;

/// The gates that wait for an answer beside what paused the run; empty without any.
fn waiting_too(run: RunId, gates: &[Gate], global: &Global) -> String {
    if gates.is_empty() {
        return String::new();
    }
    let names = gate_names(gates).join(", ");
    let answer = answer_command(run, gates, global);
    format!("A person can answer meanwhile, at {names}: {answer}\n")
}

/// How many failures are listed.
const LISTED: usize = 5;

const UNHANDLED: &str =
    "no edge ([condition=\"outcome=failed\"]), status of an exit or on_failure handles";

fn partly_succeeded(unhandled: &[StageFailure], run: RunId, global: &Global) -> String {
    let shown = |stage| one_line(&Cause::of_stage(stage).to_string(), SHOWN);
    let mut text = format!("run {run} partially succeeded: ");
    match unhandled {
        [] => text.push_str("the exit sets this status\n"),
        [one] => {
            let _ = writeln!(text, "{UNHANDLED} the failure of {}", shown(one));
        }
        several => {
            let _ = writeln!(text, "{UNHANDLED} {} failures", several.len());
            for stage in several.iter().take(LISTED) {
                let _ = writeln!(text, "  {}", shown(stage));
            }
            if several.len() > LISTED {
                let _ = writeln!(text, "  … and {} more", several.len() - LISTED);
            }
        }
    }
    if let Some(first) = unhandled.first() {
        text.push_str(&what_to_do(first, run, global));
    }
    text
}

/// What failed, and the commands to continue with. `edges` are those that the failed stage did not take.
fn failed(
    failure: &Failure,
    cause: Option<&StageFailure>,
    edges: &[Candidate],
    run: RunId,
    global: &Global,
) -> String {
    let what = clean(&failure.to_string()).into_owned();
    let Some(cause) = cause else {
        let inspect = global.command(&format!("inspect {run}"));
        return format!("run {run} failed: {what}\nSee why: {inspect}\n");
    };
    let first = Cause::of_stage(cause);
    let unheld = if none_holds(edges) {
        format!("; no condition of its edges held{}", conditions(edges))
    } else {
        String::new()
    };
    let mut text = if first.adds_to(failure) {
        let first = one_line(&first.to_string(), SHOWN);
        format!("run {run} failed: {what}\nFirst cause: {first}{unheld}\n")
    } else {
        let stage = one_line(&cause.stage(), SHOWN);
        format!("run {run} failed at {stage}: {what}{unheld}\n")
    };
    text.push_str(&what_to_do(cause, run, global));
    text
}

/// How much is shown of a failure.
const SHOWN: usize = 400;

/// The commands that show a failed stage, and that run it again.
fn what_to_do(cause: &StageFailure, run: RunId, global: &Global) -> String {
    let inspect = global.command(&format!("inspect {run} {}", cause.stage()));
    let retry = global.command(&format!("retry {run}"));
    format!("See why: {inspect}\nRun it again: {retry}\n")
}

/// The command that answers one of these gates.
pub fn answer_command(run: RunId, gates: &[Gate], global: &Global) -> String {
    let gate = if gates.len() > 1 { "GATE " } else { "" };
    global.command(&format!("answer {run} {gate}CHOICE"))
}

/// The command that continues a run that no process is driving; empty for others.
pub async fn resume_hint(
    store: &SqliteStore,
    run: RunId,
    global: &Global,
) -> anyhow::Result<String> {
    if is_driven(store, run).await? {
        return Ok(String::new());
    }
    let resume = global.command(&format!("resume {}", store.root(run).await?));
    Ok(format!("continue with: {resume}\n"))
}
