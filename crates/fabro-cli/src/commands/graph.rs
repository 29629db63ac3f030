//! `fabro graph`.

use clap_complete::ArgValueCompleter;
use fabro_graph::{Workflow, expand_imports};
use fabro_run::FileSources;
use fabro_types::Severity;
use std::path::PathBuf;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, cwd, home};
use crate::output;
use crate::report::not_valid;
use crate::workflow_files::{read_workflow, shown};

/// Print a workflow as DOT
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:\n  fabro graph review.fabro --dot | dot -Tsvg > review.svg")]
pub struct GraphArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow
    #[arg(add = ArgValueCompleter::new(complete::workflows))]
    pub workflow: String,

    /// Print DOT for Graphviz; this is the default
    #[arg(long)]
    pub dot: bool,

    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Prints a workflow as DOT.
pub fn graph(args: &GraphArgs, global: &Global) -> anyhow::Result<Exit> {
    let cwd = cwd()?;
    let named = cwd.join(&args.workflow);
    let is_settings = named.extension().is_some_and(|extension| extension == "toml");
    let path = if named.is_file() && !is_settings {
        named
    } else {
        fabro_config::locate(&args.workflow, &cwd, home().as_deref())?.workflow_file
    };
    let source = read_workflow(&path)?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let file = shown(&path, &cwd);
    let mut workflow = Workflow::from_source(&name, &source)
        .map_err(|finding| not_valid(&file, &source, &[finding], global))?;
    let dir = path.parent().map_or_else(|| cwd.clone(), |dir| cwd.join(dir));
    expand_imports(&mut workflow, &FileSources::new(dir, home()));
    let mut findings = workflow.findings().to_vec();
    workflow.place(&mut findings);
    findings.retain(|finding| finding.severity == Severity::Error);
    if !findings.is_empty() {
        return Err(not_valid(&file, &source, &findings, global));
    }
    let dot = workflow.to_dot();
    match &args.output {
        Some(path) => std::fs::write(path, dot).map_err(|error| {
            let what = format!("{} cannot be written", path.display());
            error::unwritable(&what, &error, "name another file")
        })?,
        None => output::stdout(&dot)?,
    }
    Ok(Exit::SUCCEEDED)
}
