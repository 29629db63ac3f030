use std::fmt::Write as _;

use fabro_events::{
    CompletedStage, CreatedRun, EdgeChoice, Event, EventBody, ForkPoint, GateOption, ParentStage,
    PauseReason, PlannedBranch, Tier,
};
use fabro_gate::default_option;
use fabro_types::{BranchPath, Failure, FailureClass, Usage, one_line, took};

use crate::agent_line::agent_line;
use crate::paint::Mark;
use crate::text::QUOTED;

/// One event in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How many fan-outs it is inside.
    pub depth: usize,
    /// How it is marked.
    pub mark: Mark,
    /// The sentence: one line, without a full stop.
    pub text: String,
}

/// Renders one event as a sentence.
pub fn line(event: &Event) -> Line {
    line_of(event, &name(event))
}

/// Like [`line`], with `name` as the name of the event's stage.
pub(crate) fn line_of(event: &Event, name: &str) -> Line {
    let (mark, text) = run_line(event)
        .or_else(|| stage_line(event, name))
        .or_else(|| other_line(event, name))
        .or_else(|| agent_line(event, name))
        .unwrap_or_else(|| (Mark::Note, kind(event)));
    Line { depth: depth(event), mark, text }
}

/// Why an edge was taken, in a few words; empty when there was nothing to choose.
pub fn why(choice: &EdgeChoice) -> String {
    let label = || choice.label.as_deref().unwrap_or(&choice.to);
    match choice.tier {
        Tier::Condition => {
            let condition = choice.taken_condition();
            condition.map_or_else(|| "its condition holds".to_owned(), |it| one_line(it, QUOTED))
        }
        Tier::PreferredLabel => format!("`{}` was chosen", one_line(label(), QUOTED)),
        // Only a gate has templates in its labels, and is routed by the target of the option.
        Tier::SuggestedNext if label().contains("{{") => "chosen at the gate".to_owned(),
        Tier::SuggestedNext => "suggested by the stage".to_owned(),
        Tier::Unconditional if choice.candidates.len() > 1 => {
            let conditions = choice.candidates.iter().filter_map(|edge| edge.condition.as_deref());
            let conditions = conditions.collect::<Vec<_>>().join(", ");
            match one_line(&conditions, QUOTED) {
                conditions if conditions.is_empty() => "no condition holds".to_owned(),
                conditions => format!("no condition holds: {conditions}"),
            }
        }
        Tier::Unconditional => String::new(),
        Tier::Join => "branches joined".to_owned(),
        Tier::RetryTarget => "retry target".to_owned(),
        Tier::FallbackRetryTarget => "fallback retry target".to_owned(),
        Tier::GoalGate => {
            format!("goal gate `{}` is not met", choice.gate.as_deref().unwrap_or_default())
        }
        Tier::Assumed => "assumed in a dry run".to_owned(),
        other => other.as_str().to_owned(),
    }
}

/// How many fan-outs an event is inside.
pub(crate) fn depth(event: &Event) -> usize {
    event.entry.branch.as_deref().map_or(0, |branch| BranchPath::new(branch).depth())
}

/// `NODE`, or `NODE@VISIT` from the second visit; `NODE[0]` in the branch of the first element of a list.
pub(crate) fn name(event: &Event) -> String {
    name_in(event, &SubWorkflowLabel::default())
}

/// Distinguishes concurrent sub-workflows in the names of their stages.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubWorkflowLabel {
    /// The list elements that the sub-workflow runs for, as `[3]`.
    pub(crate) elements: String,
    /// The stage that runs the sub-workflow, as `NODE/`, if its branch has no list elements.
    pub(crate) path: String,
}

impl SubWorkflowLabel {
    /// The label of the sub-workflow that the stage `parent` runs; `self` is the label of its run.
    pub(crate) fn below(&self, parent: &ParentStage) -> Self {
        let branch = BranchPath::new(parent.branch.as_deref().unwrap_or_default());
        let elements = self.elements.clone() + &branch.elements();
        let is_named = parent.branch.is_some() && elements.is_empty();
        let own = if is_named { format!("{}/", parent.node_id) } else { String::new() };
        Self { elements, path: self.path.clone() + &own }
    }
}

/// Like [`name`], for a stage of a sub-workflow.
pub(crate) fn name_in(event: &Event, sub_workflow: &SubWorkflowLabel) -> String {
    let node = event.entry.node_id.as_deref().unwrap_or_default();
    let branch = BranchPath::new(event.entry.branch.as_deref().unwrap_or_default());
    let SubWorkflowLabel { elements, path } = sub_workflow;
    let name = format!("{path}{node}{elements}{}", branch.elements());
    match event.entry.visit {
        Some(visit) if visit > 1 => format!("{name}@{visit}"),
        _ => name,
    }
}

pub(crate) fn failure(failure: &Failure) -> String {
    let text = one_line(&failure.text(), QUOTED);
    match failure.class {
        FailureClass::Deterministic => text,
        class => format!("{text} ({class})"),
    }
}

/// The last part of a branch's name: the node it begins with.
pub(crate) fn branch(event: &Event) -> &str {
    BranchPath::new(event.entry.branch.as_deref().unwrap_or_default()).name()
}

fn run_line(event: &Event) -> Option<(Mark, String)> {
    Some(match &event.entry.body {
        EventBody::RunCreated(run) => (Mark::Note, created(run)),
        EventBody::RunStarted {} => (Mark::Note, "run started".to_owned()),
        EventBody::RunResumed { max_cost: None } => (Mark::Note, "run resumed".to_owned()),
        EventBody::RunResumed { max_cost: Some(limit) } => {
            (Mark::Note, format!("run resumed with a limit of ${limit:.2}"))
        }
        EventBody::RunPaused { reason, message, .. } => {
            // Runs of older versions have the advice in the message.
            let message = message.split_once("; `fabro").map_or(&**message, |(text, _)| text);
            let advice = match reason {
                PauseReason::Budget => "`fabro resume RUN` with a higher limit continues",
                PauseReason::Unavailable => "`fabro resume RUN` retries",
                _ => "`fabro answer RUN GATE CHOICE`",
            };
            (Mark::Ask, format!("run paused: {}; {advice}", one_line(message, QUOTED)))
        }
        EventBody::RunCompleted { status, usage, unhandled, .. } => {
            let cause = unhandled.first().map(|stage| one_line(&stage.to_string(), QUOTED));
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            (Mark::of(*status), format!("run {status}{cause}{}", used(usage)))
        }
        EventBody::RunFailed { failure: why, usage, .. } => {
            (Mark::Bad, format!("run failed: {}{}", failure(why), used(usage)))
        }
        EventBody::RunCanceled { reason, .. } => {
            (Mark::Bad, format!("run canceled: {}", one_line(reason, QUOTED)))
        }
        EventBody::CheckpointForked(point) => (Mark::Note, forked(point)),
        _ => return None,
    })
}

fn stage_line(event: &Event, name: &str) -> Option<(Mark, String)> {
    Some(match &event.entry.body {
        EventBody::StageStarted { handler, .. } => {
            (Mark::Note, format!("{name} started ({handler})"))
        }
        EventBody::StageRetrying { attempt, delay_ms, failure: why, .. } => {
            let next = attempt + 1;
            let text =
                format!("{name} failed: {}; attempt {next} in {}", failure(why), took(*delay_ms));
            (Mark::Odd, text)
        }
        EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
            (Mark::of(end.outcome.status), ended(name, end))
        }
        EventBody::EdgeSelected(choice) => {
            let reason = why(choice);
            let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
            (Mark::Note, format!("{name} → {}{reason}", choice.to))
        }
        EventBody::LoopRestart { to } => {
            (Mark::Note, format!("restarts at {to} with a new context"))
        }
        EventBody::GateAsked { .. } => (Mark::Ask, asked(name, &event.entry.body, event.ts_ms)?),
        EventBody::GateAnswered { label, text, source, by, .. } => {
            let answer = one_line(text.as_deref().unwrap_or(label), QUOTED);
            let by = by
                .as_ref()
                .filter(|by| by.is_person())
                .map(|by| format!(" by {}", one_line(&by.name, QUOTED)));
            let by = by.unwrap_or_default();
            (Mark::Note, format!("{name} was answered{by}: {answer} ({source})"))
        }
        _ => return None,
    })
}

/// A question with what can be answered, what cannot, and what happens without an answer.
fn asked(name: &str, body: &EventBody, now_ms: i64) -> Option<String> {
    let EventBody::GateAsked {
        question,
        question_type: _,
        options,
        freeform,
        text_option,
        default_choice,
        deadline_ms,
        item,
        show: _,
    } = body
    else {
        return None;
    };
    let named = |it: &GateOption| format!("[{}] {}", it.key, one_line(&it.label, QUOTED));
    let item = item.as_ref().map(|item| format!(" ({})", one_line(item, QUOTED)));
    let item = item.unwrap_or_default();
    let mut text = format!("{name}{item} asks: {}", one_line(question, QUOTED));
    for option in options {
        let _ = write!(text, " {}", named(option));
        if let Some(reason) = &option.unavailable {
            let _ = write!(text, " (not now: {})", one_line(reason, QUOTED));
        }
    }
    if let Some(option) = text_option.as_ref().filter(|option| !option.key.is_empty()) {
        let _ = write!(text, " {}", named(option));
    }
    if *freeform {
        text.push_str(" or free text");
    }
    if let Some(deadline) = deadline_ms {
        let left = took(u64::try_from(deadline.saturating_sub(now_ms)).unwrap_or_default());
        let default = default_option(options, text_option.as_ref(), default_choice.as_deref());
        let _ = match default.filter(|option| option.unavailable.is_none()) {
            Some(option) if option.key.is_empty() => {
                write!(
                    text,
                    " (after {left} it goes to {}; `fabro answer` can answer before)",
                    option.to
                )
            }
            Some(option) => {
                write!(
                    text,
                    " (after {left} {} is taken; `fabro answer` can answer before)",
                    named(option)
                )
            }
            None => write!(text, " (within {left}; `fabro answer` can answer too)"),
        };
    }
    Some(text)
}

fn other_line(event: &Event, name: &str) -> Option<(Mark, String)> {
    Some(match &event.entry.body {
        EventBody::ParallelStarted { branches, join, max_parallel, for_each, .. } => {
            let assumed = for_each.as_ref().is_some_and(|list| list.assumed);
            let note = if assumed {
                "; nothing makes its list in a dry run: one element is assumed"
            } else {
                ""
            };
            (Mark::Note, fan_out(name, branches, join.as_deref(), *max_parallel) + note)
        }
        EventBody::BranchStarted {} => (Mark::Note, format!("branch {} started", branch(event))),
        EventBody::BranchCompleted { canceled: true, failure: why, .. } => {
            let why = why.as_ref().map_or_else(|| "no longer needed".to_owned(), failure);
            (Mark::Note, format!("branch {} canceled: {why}", branch(event)))
        }
        EventBody::BranchCompleted { status, failure: why, .. } => {
            let why = why.as_ref().map(|why| format!(": {}", failure(why))).unwrap_or_default();
            (Mark::of(*status), format!("branch {} {status}{why}", branch(event)))
        }
        EventBody::ParallelCompleted { status } => {
            (Mark::of(*status), format!("branches of {name} {status}"))
        }
        EventBody::ContextRefused { key, reason } => {
            (Mark::Odd, format!("{name} may not write `{key}`: {reason}"))
        }
        _ => return None,
    })
}

fn created(run: &CreatedRun) -> String {
    let mut text = format!("run of {} created", one_line(&run.workflow, QUOTED));
    if run.dry_run {
        text.push_str(" (dry run)");
    }
    if !run.goal.is_empty() {
        let _ = write!(text, ": {}", one_line(&run.goal, QUOTED));
    }
    text
}

fn forked(point: &ForkPoint) -> String {
    let at = point.stage.as_deref().unwrap_or("its beginning");
    if let Some(retry) = &point.retry {
        return format!("retried from {}", retry.stages.join(", "));
    }
    let mut text = if point.in_place {
        format!("rewound to {at}")
    } else {
        format!("forked from {} at {at}", point.from_run)
    };
    if !point.set.is_empty() {
        let keys: Vec<&str> = point.set.keys().map(String::as_str).collect();
        let _ = write!(text, " with {} changed", keys.join(", "));
    }
    text
}

fn ended(name: &str, end: &CompletedStage) -> String {
    let outcome = &end.outcome;
    let mut text = format!("{name} {} in {}", outcome.reads_as(), took(outcome.duration_ms));
    if end.attempts > 1 {
        let _ = write!(text, " after {} attempts", end.attempts);
    }
    if let Some(why) = &outcome.failure {
        let _ = write!(text, ": {}", failure(why));
    } else if let Some(notes) = &outcome.notes {
        let _ = write!(text, ": {}", one_line(notes, QUOTED));
    }
    text
}

fn fan_out(name: &str, branches: &[PlannedBranch], join: Option<&str>, max: u32) -> String {
    const SHOWN: usize = 6;
    let targets: Vec<&str> =
        branches.iter().take(SHOWN).map(|branch| BranchPath::new(&branch.branch).name()).collect();
    let more = if branches.len() > SHOWN { ", …" } else { "" };
    let mut text = match branches.len() {
        0 => format!("{name}: an empty list, no branches"),
        1 => format!("{name}: 1 parallel branch, {}", targets[0]),
        count => format!("{name}: {count} parallel branches, {}{more}", targets.join(", ")),
    };
    if (max as usize) < branches.len() {
        let _ = write!(text, "; {max} at a time");
    }
    if let Some(join) = join {
        let _ = write!(text, ", joining at {join}");
    }
    text
}

/// The model usage of a run; empty without any.
fn used(usage: &Usage) -> String {
    let tokens = usage.input_tokens + usage.output_tokens;
    if tokens == 0 {
        return String::new();
    }
    let cost =
        if usage.cost_usd > 0.0 { format!(", ${:.2}", usage.cost_usd) } else { String::new() };
    format!("; {tokens} tokens{cost}")
}

/// The event's name, for events this crate has no sentence for.
#[expect(clippy::expect_used, reason = "it cannot fail: every key is a string")]
fn kind(event: &Event) -> String {
    let json = serde_json::to_value(&event.entry.body).expect("an event has only string keys");
    json["event"].as_str().unwrap_or("event").to_owned()
}
