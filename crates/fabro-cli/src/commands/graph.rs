//! `fabro graph`.

use fabro_graph::Workflow;
use fabro_types::Severity;

use super::walk::{read_workflow, shown};
use crate::cli::GraphArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Prints a workflow as DOT.
pub fn graph(args: &GraphArgs, global: &Global) -> anyhow::Result<Exit> {
    let cwd = global.cwd()?;
    let named = cwd.join(&args.workflow);
    let is_settings = named.extension().is_some_and(|extension| extension == "toml");
    let path = if named.is_file() && !is_settings {
        named
    } else {
        fabro_config::locate(&args.workflow, &cwd, global.home().as_deref())?.workflow_file
    };
    let source = read_workflow(&path)?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let (workflow, mut findings) = match Workflow::from_source(&name, &source) {
        Ok((workflow, findings)) => (Some(workflow), findings),
        Err(finding) => (None, vec![finding]),
    };
    findings.retain(|finding| finding.severity == Severity::Error);
    let file = shown(&path, &cwd);
    let Some(workflow) = workflow.filter(|_| findings.is_empty()) else {
        return Err(error::not_valid(&file, &source, &findings, global));
    };
    let dot = workflow.to_dot();
    match &args.output {
        Some(path) => std::fs::write(path, dot).map_err(|error| {
            let what = format!("{} cannot be written", path.display());
            error::unwritable(&what, &error, "name another file")
        })?,
        None => output::stdout(&dot)?,
    }
    Ok(exit::SUCCEEDED)
}
