//! Lines about runs, stages and gates that several commands print.

use std::fmt::Write as _;

use fabro_events::ForkPoint;
use fabro_gate::{default_option, shown_lines};
use fabro_inspect::StageRow;
use fabro_run::{Gate, gate_names, now_ms};
use fabro_terminal::{Paint, clean, one_line, tokens, took, why, wrap};
use fabro_types::{Failure, Usage};

/// Where a fork or a rewind was made: `from RUN after STAGE`.
pub(crate) fn fork_text(point: &ForkPoint) -> String {
    let after = point.stage.as_deref().map(|stage| format!("after {stage}")).unwrap_or_default();
    if point.in_place { after } else { format!("from {} {after}", point.from_run) }
}

/// A time of a report for people, to the second.
pub(crate) fn readable(timestamp: &str) -> String {
    let seconds = timestamp.get(..19).unwrap_or(timestamp);
    format!("{} UTC", seconds.replace('T', " "))
}

/// `2 turns, 3.2k tokens in, 850 out, $0.12`.
pub(crate) fn usage_text(usage: &Usage) -> String {
    let turns = if usage.turns == 1 { "turn" } else { "turns" };
    let cached = match usage.cached_tokens {
        0 => String::new(),
        cached => format!(" ({} cached)", tokens(cached)),
    };
    let cost = cost_text(usage);
    let cost = if cost.is_empty() { cost } else { format!(", {cost}") };
    let input = tokens(usage.input_tokens);
    let output = tokens(usage.output_tokens);
    format!("{} {turns}, {input} tokens in{cached}, {output} out{cost}", usage.turns)
}

/// A price in US dollars; empty when it is not known. Small ones have four decimal places.
pub(crate) fn cost_text(usage: &Usage) -> String {
    match usage.cost_usd {
        cost if cost <= 0.0 => String::new(),
        cost if cost < 0.1 => format!("${cost:.4}"),
        cost => format!("${cost:.2}"),
    }
}

/// Waiting gates, each with its question, what it shows, and its options, in lines of this width.
pub(crate) fn questions(gates: &[Gate], width: usize, paint: Paint) -> String {
    let names = gate_names(gates);
    gates.iter().zip(names).map(|(gate, name)| gate_text(gate, &name, width, paint)).collect()
}

/// How many lines of a text are shown under a question.
const SHOWN_LINES: usize = 30;

/// A waiting gate, in lines of this width.
pub(crate) fn gate_text(gate: &Gate, name: &str, width: usize, paint: Paint) -> String {
    let lines = gate_lines(gate, name, paint);
    let wrapped = lines.lines().map(|line| match line.strip_prefix(SHOWN_PREFIX) {
        Some(shown) => {
            let start = format!("    {} ", paint.dim("│"));
            let shown = wrap(shown, width.saturating_sub(SHOWN_PREFIX.chars().count()), 0);
            start.clone() + &shown.replace('\n', &format!("\n{start}"))
        }
        None => wrap(line, width, 6),
    });
    wrapped.map(|line| line + "\n").collect()
}

/// What a line of a shown text begins with.
const SHOWN_PREFIX: &str = "    │ ";

fn gate_lines(gate: &Gate, name: &str, paint: Paint) -> String {
    let mut text = String::new();
    let name = paint.bold(&clean(name));
    let item = gate.item.as_ref().map(|item| format!(" ({})", one_line(item, 60)));
    let item = item.unwrap_or_default();
    let _ = writeln!(text, "{} {name}{item} asks: {}", paint.odd("?"), clean(&gate.question));
    for failure in &gate.failures {
        let _ = writeln!(text, "    {} {}", paint.bad("✗"), one_line(failure, 200));
    }
    if let Some(answer) = &gate.pending_answer {
        let answer = paint.bold(&one_line(answer, 100));
        let _ = writeln!(text, "    answered with {answer}; resume the run to continue");
        return text;
    }
    for shown in &gate.show {
        for line in shown_lines(shown, Some(gate.run), SHOWN_LINES) {
            let _ = writeln!(text, "{SHOWN_PREFIX}{}", clean(&line));
        }
    }
    for option in &gate.options {
        let label = one_line(&option.label, 100);
        let reason = option.unavailable.as_ref();
        let reason = reason.map(|it| format!("  not now: {}", one_line(it, 200)));
        let reason = paint.dim(&reason.unwrap_or_default());
        let _ = writeln!(text, "    [{}] {label}  → {}{reason}", clean(&option.key), option.to);
    }
    match gate.text_option.as_ref().filter(|option| !option.key.is_empty()) {
        Some(option) => {
            let key = clean(&option.key);
            let label = one_line(&option.label, 100);
            let _ = writeln!(text, "    [{key}] {label}  → {}, or free text", option.to);
        }
        None if gate.freeform => text.push_str("    or free text\n"),
        None => {}
    }
    if let Some(left_ms) = gate.left_ms(now_ms()) {
        let _ = writeln!(text, "    {}", at_the_limit(gate, left_ms));
    }
    text
}

/// What happens at the limit of a gate, and when that is.
fn at_the_limit(gate: &Gate, left_ms: u64) -> String {
    let Gate { options, text_option, default_choice, .. } = gate;
    let default = default_option(options, text_option.as_ref(), default_choice.as_deref());
    let what = match default.filter(|option| option.unavailable.is_none()) {
        Some(option) if option.key.is_empty() => format!("goes to {}", option.to),
        Some(option) => {
            format!("answers [{}] {}", clean(&option.key), one_line(&option.label, 100))
        }
        None => "fails".to_owned(),
    };
    match left_ms {
        0 => format!("{what} now: it has timed out"),
        left_ms => format!("{what} in {} without an answer", took(left_ms)),
    }
}

/// The next node, and why it was this one.
pub(crate) fn next_text(row: &StageRow) -> String {
    let Some(choice) = &row.choice else { return String::new() };
    match why(choice) {
        why if why.is_empty() => choice.to.to_string(),
        why => format!("{} ({why})", choice.to),
    }
}

/// A failure on one line.
pub(crate) fn failure_line(failure: &Failure) -> String {
    one_line(&failure.to_string(), 300)
}
