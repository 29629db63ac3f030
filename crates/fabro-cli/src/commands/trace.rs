//! `fabro trace`.

use std::path::PathBuf;

use clap_complete::ArgValueCandidates;
use fabro_config::TelemetrySettings;
use fabro_run::{exporter, run_telemetry, run_trace};
use fabro_telemetry::ExportError;
use fabro_types::RunId;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, find, settings};
use crate::output;

/// Show a run as an OpenTelemetry trace, or send it to a collector
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro trace latest > trace.json                          OTLP as JSON\n  fabro trace latest --send                                to the collector of [telemetry]\n  fabro trace latest --send --otlp http://127.0.0.1:4318\n\nSub-workflows are included. The same run gives the same ids: a trace can be sent again."
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

    /// Write it into this file instead of to stdout
    #[arg(short, long, value_name = "FILE", conflicts_with = "send")]
    pub output: Option<PathBuf>,
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

fn undelivered(failed: &ExportError) -> anyhow::Error {
    error::failed(failed.to_string(), "start the collector, or correct its address")
}

/// Sends the trace of a run that ended or paused, where the settings named a collector when it was created. A failure is a warning:
/// the run is what it is.
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
