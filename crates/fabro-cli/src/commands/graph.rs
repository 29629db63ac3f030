//! `fabro graph`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use fabro_engine::read_all;
use fabro_events::EventBody;
use fabro_graph::{Workflow, expand_imports};
use fabro_page::{edges, marks};
use fabro_picture::{Marks, outline, svg};
use fabro_run::{Bundle, FileSources, is_driven, now_ms};
use fabro_types::Severity;

use crate::complete;
use crate::error::{self, usage};
use crate::exit::Exit;
use crate::global::{Global, cwd, home, stdout_width};
use crate::output;
use crate::report::not_valid;
use crate::workflow_files::{read_workflow, shown};

/// Draw a workflow: as an outline, an SVG or DOT
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro graph review.fabro\n  fabro graph review.fabro -o review.svg\n  fabro graph --run latest -o run.svg\n  fabro graph review.fabro --format dot | dot -Tpdf > review.pdf\n\nOn a terminal it prints an outline, elsewhere DOT."
)]
pub struct GraphArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow
    #[arg(add = ArgValueCompleter::new(complete::workflows), required_unless_present = "run")]
    pub workflow: Option<String>,

    /// The workflow of a run, with what the run did
    #[arg(long, value_name = "RUN", conflicts_with = "workflow", add = ArgValueCandidates::new(complete::runs))]
    pub run: Option<String>,

    /// The format [default: by the name of the file; outline on a terminal, dot elsewhere]
    #[arg(long, value_enum)]
    pub format: Option<GraphFormat>,

    /// The same as --format dot
    #[arg(long, conflicts_with = "format")]
    pub dot: bool,

    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How a workflow is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphFormat {
    /// Every node with its edges, as lines
    Outline,
    /// A picture
    Svg,
    /// For Graphviz
    Dot,
}

impl GraphArgs {
    fn format(&self) -> GraphFormat {
        let extension = self.output.as_deref().and_then(Path::extension);
        match (self.format, extension.and_then(|it| it.to_str())) {
            (Some(format), _) => format,
            _ if self.dot => GraphFormat::Dot,
            (None, Some("svg")) => GraphFormat::Svg,
            (None, Some("txt")) => GraphFormat::Outline,
            (None, None) if self.output.is_none() && std::io::stdout().is_terminal() => {
                GraphFormat::Outline
            }
            _ => GraphFormat::Dot,
        }
    }
}

/// Draws a workflow.
pub async fn graph(args: &GraphArgs, global: &Global) -> anyhow::Result<Exit> {
    let drawn = if let Some(run) = &args.run {
        let (store, id) = global.run_to_read(run).await?;
        let events = read_all(&store, id).await?;
        let created = events.first().and_then(|event| match &event.entry.body {
            EventBody::RunCreated(created) => Some(created),
            _ => None,
        });
        let created = created.ok_or(fabro_run::RunError::NotCreated { run: id })?;
        let workflow = Bundle::load(&store, created)?.plan()?.workflow().clone();
        let mut report = fabro_inspect::inspect(&events, is_driven(&store, id).await?)?;
        report.until(now_ms());
        let marks = marks(&report.stages, &edges(&events));
        draw(&workflow, Some(&marks), args)?
    } else {
        draw(&read(args.workflow.as_deref().unwrap_or_default(), global)?, None, args)?
    };
    match &args.output {
        Some(path) => output::file(path, drawn.as_bytes()).map_err(|error| {
            let what = format!("{} cannot be written", path.display());
            error::unwritable(&what, &error, "name another file")
        })?,
        None => output::stdout(&drawn)?,
    }
    Ok(Exit::SUCCEEDED)
}

fn draw(workflow: &Workflow, marks: Option<&Marks>, args: &GraphArgs) -> anyhow::Result<String> {
    Ok(match args.format() {
        GraphFormat::Dot => workflow.to_dot(),
        GraphFormat::Svg => svg(workflow, marks).map_err(|error| {
            usage(
                error.to_string(),
                "draw it as an outline, or with Graphviz: --format outline, dot",
            )
        })?,
        GraphFormat::Outline => {
            let is_file = args.output.is_some();
            outline(workflow, marks, if is_file { 120 } else { stdout_width().min(200) })
        }
    })
}

/// The workflow of a file, or of this name.
fn read(workflow: &str, global: &Global) -> anyhow::Result<Workflow> {
    let cwd = cwd()?;
    let named = cwd.join(workflow);
    let is_settings = named.extension().is_some_and(|extension| extension == "toml");
    let path = if named.is_file() && !is_settings {
        named
    } else {
        fabro_config::locate(workflow, &cwd, home().as_deref())?.workflow_file
    };
    let source = read_workflow(&path)?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let file = shown(&path, &cwd);
    let mut workflow = Workflow::from_source(&name, &source)
        .map_err(|finding| not_valid(&file, &source, &[finding], global))?;
    expand_imports(&mut workflow, &FileSources::new(cwd.join(&path), home()));
    let mut findings = workflow.findings().to_vec();
    workflow.place(&mut findings);
    findings.retain(|finding| finding.severity == Severity::Error);
    if !findings.is_empty() {
        return Err(not_valid(&file, &source, &findings, global));
    }
    Ok(workflow)
}
