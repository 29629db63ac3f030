//! `fabro trace`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap_complete::ArgValueCandidates;
use fabro_config::TelemetrySettings;
use fabro_run::{exporter, run_telemetry, run_trace};
use fabro_telemetry::{AttributeValue, Export, ExportError, Span, names};
use fabro_terminal::{Paint, cut, one_line, took};
use fabro_types::RunId;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, find, settings, stdout_width};
use crate::output;

/// Show a run as a trace, or send it to a collector
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro trace latest\n  fabro trace latest -o trace.json    OTLP as JSON\n  fabro trace latest --send           to the collector of [telemetry]\n  fabro trace latest --send --otlp http://127.0.0.1:4318\n\nA terminal shows a tree of spans, anything else gets JSON. Sub-workflows are included. The same run gives the same ids: a trace can be sent again."
)]
pub struct TraceArgs {
    /// The run: an id, the beginning of one, or `latest`
    #[arg(value_name = "RUN", default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// Send it to a collector instead of printing it
    #[arg(long)]
    pub send: bool,

    /// The collector, by OTLP over HTTP [default: `telemetry.otlp` of the settings]
    #[arg(long, value_name = "URL", requires = "send")]
    pub otlp: Option<String>,

    /// With prompts, answers, and arguments and results of tools
    #[arg(long)]
    pub content: bool,

    /// Write it as JSON into this file instead of to stdout
    #[arg(short, long, value_name = "FILE", conflicts_with = "send")]
    pub output: Option<PathBuf>,

    /// Print JSON, also on a terminal
    #[arg(long, conflicts_with = "send")]
    pub json: bool,
}

/// Prints the trace of a run, or sends it.
pub async fn trace(args: &TraceArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.store_to_read()?;
    let run = find(&store, &args.run).await?;
    let configured = settings()?.telemetry;
    if args.send {
        let has_content = args.content || configured.content == Some(true);
        let telemetry = match &args.otlp {
            Some(url) => {
                TelemetrySettings { otlp: Some(url.clone()), ..TelemetrySettings::default() }
            }
            None => configured,
        };
        let exporter = exporter(&telemetry)?.ok_or_else(|| {
            error::usage(
                "there is no collector to send the trace to",
                "name one with --otlp URL, or set `otlp` in [telemetry] of .fabro/config.toml",
            )
        })?;
        let sent = exporter.send(run_trace(&store, run, has_content).await?).await;
        let count = sent.map_err(|failed| undelivered(&failed))?;
        output::stderr(&format!("sent {count} spans of run {run}\n"));
        return Ok(Exit::SUCCEEDED);
    }
    let trace = run_trace(&store, run, args.content).await?;
    if args.output.is_none() && !args.json && io::stdout().is_terminal() {
        output::text(&tree(&trace, stdout_width(), global.paint_stdout()))?;
        return Ok(Exit::SUCCEEDED);
    }
    let json = format!("{}\n", serde_json::to_string(&trace)?);
    match &args.output {
        None => output::json_text(json)?,
        Some(file) => output::file(file, json.as_bytes()).map_err(|cause| {
            let what = format!("{} cannot be written", file.display());
            error::unwritable(&what, &cause, "choose another file")
        })?,
    }
    Ok(Exit::SUCCEEDED)
}

/// The spans as an indented tree, each with its offset from the start of the trace and its duration.
fn tree(trace: &Export, width: usize, paint: Paint) -> String {
    let mut children: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
    for span in trace.spans() {
        children.entry(&span.parent_span_id).or_default().push(span);
    }
    for siblings in children.values_mut() {
        siblings.sort_by_key(|span| nanos(&span.start_time_unix_nano));
    }
    let begin = trace.spans().map(|span| nanos(&span.start_time_unix_nano)).min();
    let mut text = format!("{}\n", paint.dim("   start      time  span"));
    let roots = children.get("").into_iter().flatten().rev();
    let mut open: Vec<(usize, &Span)> = roots.map(|span| (0, *span)).collect();
    while let Some((depth, span)) = open.pop() {
        text.push_str(&line(span, depth, begin.unwrap_or_default(), width, paint));
        let below = children.get(&*span.span_id).into_iter().flatten().rev();
        open.extend(below.map(|child| (depth + 1, *child)));
    }
    text
}

fn line(span: &Span, depth: usize, begin: u64, width: usize, paint: Paint) -> String {
    const FAILED: u8 = 2;
    let start = nanos(&span.start_time_unix_nano);
    let times = [start - begin, nanos(&span.end_time_unix_nano).saturating_sub(start)];
    let [after, lasted] = times.map(|nanos| took(nanos / 1_000_000));
    let visit = span.attributes.iter().find(|it| it.key == names::VISIT);
    let visit = match visit.map(|it| &it.value) {
        Some(AttributeValue::Int(visit)) if visit != "1" => format!("@{visit}"),
        _ => String::new(),
    };
    let failed = match span.status.code {
        FAILED => format!("  ✗ {}", one_line(&span.status.message, MESSAGE)),
        _ => String::new(),
    };
    let name = one_line(&span.name, MESSAGE);
    let shown = cut(
        &format!("{after:>8}  {lasted:>8}  {:depth$}{name}{visit}{failed}", "", depth = depth * 2),
        width,
    );
    format!("{}\n", if failed.is_empty() { shown } else { paint.bad(&shown) })
}

/// The longest name or message of a span, in characters.
const MESSAGE: usize = 200;

/// Parses a timestamp of a span: OTLP encodes nanoseconds as a string.
fn nanos(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

fn undelivered(failed: &ExportError) -> anyhow::Error {
    error::failed(failed.to_string(), "start the collector, or correct its address")
}

/// Sends the trace of a run that ended or paused, if the settings named a collector when the run was created. A failure
/// is only a warning.
pub async fn send_at_end(run: RunId, global: &Global) {
    if let Err(failed) = try_send(run, global).await {
        global.warn([format!(
            "the trace was not sent: {failed}; `fabro trace {run} --send` sends it"
        )]);
    }
}

async fn try_send(run: RunId, global: &Global) -> anyhow::Result<()> {
    let store = global.store_to_read()?;
    // A stage may have changed the settings since.
    let Some(telemetry) = run_telemetry(&store, run).await? else { return Ok(()) };
    let Some(exporter) = exporter(&telemetry)? else { return Ok(()) };
    let trace = run_trace(&store, run, telemetry.content == Some(true)).await?;
    exporter.send(trace).await?;
    Ok(())
}
