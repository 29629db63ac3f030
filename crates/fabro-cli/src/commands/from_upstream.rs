//! `fabro doctor --from-upstream`: settings that are lost, and behavior that differs.

mod changes;

use std::fmt::Write as _;
use std::path::Path;

use fabro_config::{SettingsFile, SettingsReview, review_settings};
use fabro_run::FileSources;
use fabro_terminal::{Paint, clean, diagnostics, one_line};
use fabro_types::control_files::{FABRO_DIR, RUN_FILES, SETTINGS_FILES};
use fabro_types::{Diagnostic, LineIndex, Severity, Span};
use serde_json::{Value, json};

use crate::error;
use crate::exit::Exit;
use crate::global::{Global, cwd, home};
use crate::output;
use crate::workflow_files::{EXTENSIONS, files_in, shown};
use changes::{Change, changes};

/// A file of the project, and what this version does with it.
struct Reviewed {
    file: String,
    source: String,
    review: SettingsReview,
    changes: Vec<Change>,
}

/// Lists the files of a project, what is understood of them, and what is lost.
pub(super) fn from_upstream(dir: &Path, is_json: bool, global: &Global) -> anyhow::Result<Exit> {
    if dir.is_relative() {
        cwd()?;
    }
    if !dir.is_dir() {
        let message = format!("{} is not a directory", dir.display());
        return Err(error::usage(message, "name the directory of a project"));
    }
    let files = files_in(dir, |path| is_workflow(path) || settings_kind(path).is_some())?;
    if files.is_empty() {
        let message = format!("there are no files of fabro in {}", dir.display());
        return Err(error::usage(
            message,
            "name the directory of a project: it has .fabro, workflow.toml, run.toml or *.fabro",
        ));
    }
    let all: Vec<_> = files.iter().map(|path| reviewed(path, dir)).collect();
    let lost: usize = all.iter().map(|it| it.review.findings.len()).sum();
    if is_json {
        let files: Vec<Value> = all.iter().map(Reviewed::as_json).collect();
        output::json(&json!({ "files": files, "lost": lost }))?;
    } else {
        output::text(&text(&all, lost, global.paint_stdout()))?;
    }
    Ok(if lost == 0 { Exit::SUCCEEDED } else { Exit::FAILED })
}

fn is_workflow(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|it| EXTENSIONS.contains(&it))
}

/// What a file with settings is; `None` for any other.
fn settings_kind(path: &Path) -> Option<SettingsFile> {
    let name = path.file_name()?.to_str()?;
    let below_fabro = || path.components().any(|part| part.as_os_str() == FABRO_DIR);
    let [own, project, older] = SETTINGS_FILES;
    if path.ends_with(project) || path.ends_with(older) {
        return Some(SettingsFile::Project);
    }
    if path.ends_with(own) {
        return Some(SettingsFile::Config);
    }
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let is_run_file =
        RUN_FILES.contains(&name) || is_toml && (below_fabro() || names_a_workflow(path));
    is_run_file.then_some(SettingsFile::Run)
}

/// Whether a TOML file of any name is a run.toml: it says which workflow it runs.
fn names_a_workflow(path: &Path) -> bool {
    let Ok(text) = fabro_run::read_text(path) else { return false };
    let names = |name: &str| ["graph", "workflow.graph"].contains(&name);
    let review = review_settings(&text, SettingsFile::Run);
    review.understood.iter().any(|(name, _)| names(name))
}

fn reviewed(path: &Path, dir: &Path) -> Reviewed {
    let file = shown(path, dir);
    let source = match fabro_run::read_text(path) {
        Ok(source) => source,
        Err(reason) => {
            let finding = Diagnostic::error("unreadable", Span::default(), reason)
                .with_fix("make it a text file that can be read");
            let review = SettingsReview { findings: vec![finding], ..SettingsReview::default() };
            return Reviewed { file, source: String::new(), review, changes: Vec::new() };
        }
    };
    let (mut review, changes) = match settings_kind(path) {
        Some(kind) => (review_settings(&source, kind), Vec::new()),
        None => workflow_review(path, &source),
    };
    // The version of the format is no setting.
    review.findings.retain(|it| it.rule != "settings-version" || it.severity == Severity::Error);
    review.understood.retain(|(name, _)| !name.ends_with("version"));
    Reviewed { file, source, review, changes }
}

/// The rules of findings that say what is lost of a workflow; others are about the workflow itself.
const LOSSES: [&str; 7] = [
    "misspelled-attribute",
    "subgraph-attribute",
    "template-root",
    "unknown-property",
    "unknown-tool",
    "unknown-type",
    "without-effect",
];

fn workflow_review(path: &Path, source: &str) -> (SettingsReview, Vec<Change>) {
    let sources = FileSources::new(path.to_owned(), home());
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let checked = fabro_validate::check(&name, source, &sources, None);
    let changes = changes(&checked);
    let mut findings = checked.findings;
    findings.retain(|it| it.severity == Severity::Error || LOSSES.contains(&it.rule));
    (SettingsReview { findings, ..SettingsReview::default() }, changes)
}

impl Reviewed {
    fn as_json(&self) -> Value {
        let index = LineIndex::new(&self.source);
        let line = |span: &Span| index.position(span.start).line;
        let understood = self.review.understood.iter();
        let understood: Vec<Value> =
            understood.map(|(name, span)| json!({"name": name, "line": line(span)})).collect();
        let without_effect = self.review.without_effect.iter().map(
            |(name, span, reason)| json!({"name": name, "line": line(span), "reason": reason}),
        );
        json!({
            "file": self.file,
            "understood": understood,
            "without_effect": without_effect.collect::<Vec<_>>(),
            "changes": self.changes.iter().map(|change| change.as_json(line)).collect::<Vec<_>>(),
            "lost": diagnostics::as_data(&self.source, &self.review.findings),
        })
    }

    fn write_to(&self, text: &mut String, paint: Paint) {
        let index = LineIndex::new(&self.source);
        let place = |span: Span| {
            let at = index.position(span.start);
            format!("{}:{}", at.line, at.column)
        };
        let _ = writeln!(text, "{}", clean(&self.file));
        let names: Vec<&str> =
            self.review.understood.iter().map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            let names = clean(&names.join(", ")).into_owned();
            let _ = writeln!(text, "  {} understood: {names}", paint.good("✓"));
        } else if self.review.findings.is_empty() {
            let _ = writeln!(text, "  {} understood", paint.good("✓"));
        }
        for (name, span, reason) in &self.review.without_effect {
            let _ = writeln!(text, "  · {} {}: {reason}", place(*span), clean(name));
        }
        for change in &self.changes {
            let nodes = clean(&change.nodes.join(", ")).into_owned();
            let at = place(change.span);
            let _ = writeln!(text, "  {} {at} {nodes}: {}", paint.odd("~"), change.message);
            let _ = writeln!(text, "      {} {}", paint.hint("help:"), change.fix);
        }
        for finding in &self.review.findings {
            let mark = match finding.severity {
                Severity::Error => paint.bad("✗"),
                Severity::Warning => paint.odd("!"),
            };
            let message = one_line(&finding.message, 300);
            let _ = writeln!(text, "  {mark} {} {message}", place(finding.span));
            if let Some(fix) = &finding.fix {
                let _ = writeln!(text, "      {} {}", paint.hint("help:"), one_line(fix, 300));
            }
        }
    }
}

fn text(all: &[Reviewed], lost: usize, paint: Paint) -> String {
    let mut text = String::new();
    for file in all {
        file.write_to(&mut text, paint);
    }
    let refused = all
        .iter()
        .flat_map(|it| &it.review.findings)
        .filter(|it| it.severity == Severity::Error)
        .count();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let files = format!("{} file{}", all.len(), plural(all.len()));
    let result = match (lost, refused) {
        (0, _) => paint.good("nothing is lost"),
        (_, 0) => paint.odd(&format!("{lost} loss{}", if lost == 1 { "" } else { "es" })),
        _ => paint.bad(&format!("{} lost, {refused} that prevent a run", lost - refused)),
    };
    let changed: usize = all.iter().map(|it| it.changes.len()).sum();
    let changed = match changed {
        0 => String::new(),
        1 => ", 1 difference (~)".to_owned(),
        count => format!(", {count} differences (~)"),
    };
    let _ = writeln!(text, "{files}: {result}{changed}");
    text
}
