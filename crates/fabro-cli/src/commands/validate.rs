//! `fabro validate`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap_complete::ArgValueCompleter;
use fabro_config::{
    ConfigError, Findings, RunFile, Settings, Unsupported, locate_as, settings_as, settings_files,
};
use fabro_run::FileSources;
use fabro_terminal::{Paint, diagnostics};
use fabro_types::{Diagnostic, Severity, Span};
use fabro_validate::Checked;
use serde_json::{Map, Value, json};

use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, cwd, home, user_file};
use crate::output;
use crate::report;
use crate::values::{KeyValue, key_value};
use crate::workflow_files::{shown, workflows_in};

use super::watch::watch;

/// Check workflows without running them
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro validate\n  fabro validate --strict flows/ review.fabro\n  fabro validate --format json . | jq '.files[].findings'\n  fabro validate --watch review.fabro\n\nExits with 2 if a workflow has an error, with 0 if there are only warnings (2 with --strict)."
)]
pub struct ValidateArgs {
    /// Workflow files, run.toml files, names, or directories to search
    #[arg(default_value = ".", value_name = "PATH", add = ArgValueCompleter::new(complete::workflows))]
    pub paths: Vec<String>,

    /// An input, as for `fabro run`. Repeatable
    #[arg(short = 'I', long = "input", value_name = "KEY=VALUE", value_parser = key_value)]
    pub inputs: Vec<KeyValue>,

    /// How findings are printed
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,

    /// Treat warnings as errors: exit with 2 if there are any
    #[arg(long)]
    pub strict: bool,

    /// Check again whenever a workflow, or a file that it reads, changes; Ctrl-C ends it
    #[arg(short, long)]
    pub watch: bool,
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// A workflow file to be checked, and the run.toml that names it, if one does.
struct Wanted {
    path: PathBuf,
    run_file: Option<RunFile>,
    /// It was named, not found in a directory.
    is_named: bool,
}

/// A file that was checked: a workflow, or a run.toml.
struct Outcome {
    file: String,
    source: String,
    findings: Vec<Diagnostic>,
    /// The inputs that have neither a value nor a default.
    needed_inputs: Vec<String>,
    is_named: bool,
}

/// Checks workflows.
pub async fn validate(args: &ValidateArgs, global: &Global) -> anyhow::Result<Exit> {
    if args.watch {
        let check = || {
            let mut report = report_on(args)?;
            let files = std::mem::take(&mut report.files);
            Ok((report, files))
        };
        return watch(&args.paths, check, |report| show(report, args, global)).await;
    }
    let report = report_on(args)?;
    if args.is_json() {
        output::json(&report.as_json())?;
    } else {
        output::text(&human(&report.outcomes, global.paint_stdout()))?;
    }
    let has_warnings = report.outcomes.iter().any(|it| it.count(Severity::Warning) > 0);
    let passes = report.outcomes.iter().all(Outcome::is_valid) && !(args.strict && has_warnings);
    // The process ends soon: dropping the last workflow would only take time.
    std::mem::forget(report);
    Ok(if passes { Exit::SUCCEEDED } else { Exit::USAGE })
}

/// Prints the result of a check in the place of the last one.
fn show(report: &Report, args: &ValidateArgs, global: &Global) -> anyhow::Result<()> {
    if args.is_json() {
        return output::json_text(format!("{}\n", report.as_json()));
    }
    if global.can_redraw_stdout() {
        output::bytes(b"\x1b[2J\x1b[3J\x1b[H")?;
    }
    let paint = global.paint_stdout();
    let text = human(&report.outcomes, paint);
    output::text(&format!("{text}{}\n", paint.hint("Waiting for changes; Ctrl-C ends.")))
}

impl ValidateArgs {
    fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }
}

/// The result of checking all paths once.
#[derive(Default)]
struct Report {
    outcomes: Vec<Outcome>,
    /// Every file that was read, or that could not be.
    files: BTreeSet<PathBuf>,
    checked: Option<Checked>,
    /// Inputs of the command line that neither the settings nor a run.toml names.
    given: Map<String, Value>,
    /// The texts that may read them; none are collected where there are no such inputs.
    texts: Vec<String>,
    /// Where warnings about them belong: the first workflow, and the span of its name.
    first: Option<(usize, Span)>,
    /// Not every workflow could be read: an input may be for one of the others.
    is_incomplete: bool,
}

impl Report {
    /// Made only for programs: it has every finding, of which people see fifty.
    fn as_json(&self) -> Value {
        let files: Vec<Value> = self.outcomes.iter().map(Outcome::as_json).collect();
        json!({"files": files})
    }

    /// Notes which inputs of the command line a run.toml names, and the texts that may read the others.
    fn note_inputs<'t>(
        &mut self,
        workflow: &Outcome,
        run_file: Option<&RunFile>,
        files: impl Iterator<Item = &'t String>,
        home: Option<&Path>,
    ) {
        if self.given.is_empty() {
            return;
        }
        let Some(read) = self.checked.as_ref().and_then(|it| it.workflow.as_ref()) else {
            self.is_incomplete = true;
            return;
        };
        self.first.get_or_insert((self.outcomes.len(), read.head_span()));
        self.texts.extend(files.cloned());
        self.texts.push(workflow.source.clone());
        if let Some(file) = run_file {
            self.given.retain(|name, _| !file.config.inputs.contains_key(name));
            self.texts.extend(file.goal(home).ok().flatten());
        }
    }

    /// Warns of inputs of the command line that nothing reads.
    fn check_given(&mut self, goal: Option<&str>) {
        let Some((at, span)) = self.first.filter(|_| !self.is_incomplete) else { return };
        let texts = self.texts.iter().map(String::as_str).chain(goal);
        let findings = &mut self.outcomes[at].findings;
        findings.extend(fabro_run::check_given_inputs(&self.given, span, texts));
        findings.sort_by_key(|finding| finding.span.start);
    }
}

/// Checks every workflow that the paths mean, and the settings that hold for them.
fn report_on(args: &ValidateArgs) -> anyhow::Result<Report> {
    let cwd = cwd()?;
    let home = home();
    let inputs: Map<String, Value> = args.inputs.iter().cloned().collect();
    let mut report = Report::default();
    let files = settings_files(&cwd, user_file().as_deref());
    report.files.extend(files.into_iter().map(|(path, _)| path));
    // Without them workflows are checked too, but for names of models.
    let settings =
        match settings_as(&cwd, user_file().as_deref(), home.as_deref(), Unsupported::Reported) {
            Ok((settings, warnings)) => {
                report
                    .outcomes
                    .extend(warnings.iter().map(|findings| settings_outcome(findings, &cwd)));
                Some(settings)
            }
            Err(error) => {
                report.outcomes.push(unusable("settings", &error.into(), &cwd));
                None
            }
        };
    let of_project = settings.as_ref().map(|it| &it.defaults.inputs);
    let is_new = |(name, _): &&KeyValue| !of_project.is_some_and(|it| it.contains_key(name));
    report.given = args.inputs.iter().filter(is_new).cloned().collect();
    for path in &args.paths {
        report.files.insert(cwd.join(path));
        // One path may be missing or invalid; the others are checked all the same.
        match wanted(path, &cwd, home.as_deref()) {
            Ok(all) => {
                for it in &all {
                    check(it, &inputs, &cwd, home.as_deref(), settings.as_ref(), &mut report);
                }
            }
            Err(error) => {
                report.is_incomplete = true;
                report.outcomes.push(unusable(path, &error, &cwd));
            }
        }
    }
    report.check_given(settings.as_ref().and_then(|it| it.defaults.goal.as_deref()));
    Ok(report)
}

impl Outcome {
    fn new(file: String, source: String, findings: Vec<Diagnostic>) -> Self {
        Self { file, source, findings, needed_inputs: Vec::new(), is_named: false }
    }

    fn is_valid(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    fn as_json(&self) -> Value {
        let findings = diagnostics::as_data(&self.source, &self.findings);
        json!({"file": self.file, "valid": self.is_valid(), "findings": findings, "needed_inputs": self.needed_inputs})
    }

    /// What a person who starts it has to give, of a file that was named.
    fn hint(&self) -> Option<String> {
        let first = self.needed_inputs.first().filter(|_| self.is_named && self.is_valid())?;
        let names = self.needed_inputs.join(", ");
        let file = &self.file;
        Some(format!(
            "{file} needs inputs: {names}. Give them by -I {first}=… or under [run.inputs] of a run.toml."
        ))
    }
}

/// The workflows of a path: a directory, a file of any name, a run.toml, or a NAME.
fn wanted(text: &str, cwd: &Path, home: Option<&Path>) -> anyhow::Result<Vec<Wanted>> {
    let path = cwd.join(text);
    if path.is_dir() {
        let files = workflows_in(Path::new(text))?.into_iter();
        return Ok(files.map(|path| Wanted { path, run_file: None, is_named: false }).collect());
    }
    let is_settings = path.extension().is_some_and(|extension| extension == "toml");
    if path.exists() && !is_settings {
        return Ok(vec![Wanted { path: text.into(), run_file: None, is_named: true }]);
    }
    let target = locate_as(text, cwd, home, Unsupported::Reported)?;
    Ok(vec![Wanted { path: target.workflow_file, run_file: target.run_file, is_named: true }])
}

/// A path without a workflow.
fn unusable(path: &str, error: &anyhow::Error, cwd: &Path) -> Outcome {
    if let Some(ConfigError::Invalid(findings)) = error.downcast_ref() {
        return settings_outcome(findings, cwd);
    }
    unusable_file("unreadable", path.to_owned(), error.to_string(), report::next(error).as_deref())
}

fn unusable_file(rule: &'static str, file: String, reason: String, fix: Option<&str>) -> Outcome {
    let mut finding = Diagnostic::error(rule, Span::default(), reason);
    finding.fix = fix.map(str::to_owned);
    Outcome::new(file, String::new(), vec![finding])
}

fn settings_outcome(findings: &Findings, cwd: &Path) -> Outcome {
    Outcome::new(shown(&findings.path, cwd), findings.text.clone(), findings.list.clone())
}

/// The workflow, and its run.toml if that has findings. The parsed workflow is left in the report.
fn check(
    wanted: &Wanted,
    inputs: &Map<String, Value>,
    cwd: &Path,
    home: Option<&Path>,
    settings: Option<&Settings>,
    report: &mut Report,
) {
    let run_file = wanted.run_file.as_ref();
    let sources = FileSources::new(cwd.join(&wanted.path), home.map(Path::to_owned));
    // The inputs of the project are given too.
    let mut all = settings.map(|it| it.defaults.inputs.clone()).unwrap_or_default();
    all.extend(run_file.map(|file| file.config.inputs.clone()).unwrap_or_default());
    all.extend(inputs.clone());
    let given = run_file.map(|file| {
        let mut given = file.clone();
        given.config.inputs.clone_from(&all);
        given
    });
    let inputs = (run_file.is_some() || !inputs.is_empty()).then_some(&all);
    let mut workflow = check_workflow(&wanted.path, inputs, cwd, &sources, &mut report.checked);
    let of_run = run_file.and_then(|file| file.config.on_failure);
    if of_run.or(settings.and_then(|it| it.on_failure)).is_some() {
        // The settings decide what follows a failure.
        workflow.findings.retain(|finding| finding.rule != "unhandled-failure");
    }
    if let Some(checked) = &report.checked {
        let needed = checked.needed_inputs.iter().filter(|name| !all.contains_key(*name));
        workflow.needed_inputs = needed.cloned().collect();
        workflow.is_named = wanted.is_named;
    }
    report.files.insert(cwd.join(&wanted.path));
    report.files.extend(run_file.map(|file| file.path.clone()));
    report.files.extend(sources.files());
    let files = sources.into_texts();
    report.note_inputs(&workflow, run_file, files.values(), home);
    let read = report.checked.as_ref().and_then(|checked| checked.workflow.as_ref());
    let models = settings.map(|it| fabro_run::check_model_names(read, run_file, it));
    let models = models.unwrap_or_default();
    let sandbox = settings.map(|it| fabro_run::check_sandbox(read, run_file, it, home));
    // A missing setting does not make the workflow invalid; `run` refuses it.
    let mut sandbox = sandbox.unwrap_or_default();
    let of_settings = sandbox.in_workflow.iter_mut().chain(&mut sandbox.in_run_file);
    let refused = of_settings.filter(|finding| finding.severity == Severity::Error);
    refused.for_each(|finding| {
        finding.severity = Severity::Warning;
        finding.message.push_str("; `run` refuses it");
    });
    if !models.in_workflow.is_empty() || !sandbox.in_workflow.is_empty() {
        workflow.findings.extend(models.in_workflow.into_iter().chain(sandbox.in_workflow));
        workflow.findings.sort_by_key(|finding| finding.span.start);
    }
    let of_run_file = run_file.zip(given.as_ref()).map(|(file, given)| {
        let mut findings = file.warnings.clone();
        findings.list.extend(fabro_run::check_run_file(given, home));
        findings.list.extend(models.in_run_file.into_iter().chain(sandbox.in_run_file));
        if read.is_some() {
            let goal = settings.and_then(|it| it.defaults.goal.as_deref());
            let texts = files.values().map(String::as_str).chain([workflow.source.as_str()]);
            let texts = texts.chain(goal);
            findings.list.extend(fabro_run::check_inputs(file, home, texts));
        }
        findings.list.sort_by_key(|finding| finding.span.start);
        settings_outcome(&findings, cwd)
    });
    let of_run_file = of_run_file.filter(|it| !it.findings.is_empty());
    report.outcomes.extend([Some(workflow), of_run_file].into_iter().flatten());
}

fn check_workflow(
    path: &Path,
    inputs: Option<&Map<String, Value>>,
    cwd: &Path,
    sources: &FileSources,
    checked: &mut Option<Checked>,
) -> Outcome {
    *checked = None;
    let file = shown(path, cwd);
    let path = cwd.join(path);
    let source = match fabro_run::read_text(&path) {
        Ok(source) => source,
        Err(reason) if fabro_run::is_too_large(&path) => {
            return unusable_file(
                "file-too-large",
                file,
                reason,
                Some("move long prompts into files and name them with @path"),
            );
        }
        Err(reason) => {
            let fix = Some("name a text file that can be read");
            return unusable_file("unreadable", file, reason, fix);
        }
    };
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let mut found = fabro_validate::check(&name, &source, sources, inputs);
    let findings = std::mem::take(&mut found.findings);
    *checked = Some(found);
    Outcome::new(file, source, findings)
}

fn human(outcomes: &[Outcome], paint: Paint) -> String {
    let mut text = String::new();
    for it in outcomes {
        text.push_str(&diagnostics::render(&it.file, &it.source, &it.findings, paint));
    }
    let sum = |severity| outcomes.iter().map(|outcome| outcome.count(severity)).sum::<usize>();
    let errors = sum(Severity::Error);
    let warnings = sum(Severity::Warning);
    let files = counted(outcomes.len(), "file");
    let result = match (errors, warnings) {
        (0, 0) => format!("{files} checked, {}", paint.good("no findings")),
        (0, _) => format!("{files} checked: {}", paint.odd(&counted(warnings, "warning"))),
        (_, 0) => format!("{files} checked: {}", paint.bad(&counted(errors, "error"))),
        _ => format!(
            "{files} checked: {}, {}",
            paint.bad(&counted(errors, "error")),
            paint.odd(&counted(warnings, "warning"))
        ),
    };
    text.push_str(&result);
    text.push('\n');
    for hint in outcomes.iter().filter_map(Outcome::hint) {
        text.push_str(&paint.hint(&hint));
        text.push('\n');
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
