//! `fabro init`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use fabro_config::ConfigError;
use fabro_terminal::{Align, Paint, Table};
use fabro_types::clean;

use crate::error;
use crate::exit::Exit;
use crate::global::{Global, cwd, home, quoted};
use crate::output;
use templates::{TEMPLATES, Template};

mod templates;

/// Create a project with a workflow ready to run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro init                      the workflow hello\n  fabro init --list               what else there is\n  fabro init --template red-ci    the workflow red-ci, with its files"
)]
pub struct InitArgs {
    /// The project's directory
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// The workflow to begin with
    #[arg(
        long,
        value_name = "NAME",
        default_value = TEMPLATES[0].name,
        hide_possible_values = true,
        value_parser = PossibleValuesParser::new(TEMPLATES.iter().map(|it| it.name)).try_map(template)
    )]
    pub template: &'static Template,
    /// List the workflows to begin with, and create nothing
    #[arg(long, conflicts_with_all = ["dir", "template"])]
    pub list: bool,
}

/// Creates a project with a first workflow. Existing files are never changed.
pub fn init(args: &InitArgs, global: &Global) -> anyhow::Result<Exit> {
    if args.list {
        output::text(&list(global.paint_stdout()))?;
        return Ok(Exit::SUCCEEDED);
    }
    if args.dir.is_relative() {
        cwd()?;
    }
    let template = args.template;
    if let Some(named) = TEMPLATES.iter().find(|it| args.dir.as_os_str() == it.name)
        && !args.dir.exists()
    {
        return Err(error::usage(
            format!("{} is the name of a template, and of no directory here", named.name),
            format!(
                "`fabro init --template {0}` creates its workflow here; `fabro init ./{0}` creates a directory",
                named.name
            ),
        ));
    }
    let dir = args
        .dir
        .strip_prefix(".")
        .unwrap_or(&args.dir)
        .join(".fabro")
        .join("workflows")
        .join(template.name);
    let files = template.files.iter().map(|(name, content)| file(template, name, content));
    let files: Vec<_> = files.collect();
    let there = match args.dir.strip_prefix(".") {
        Ok(dir) if dir.as_os_str().is_empty() => String::new(),
        _ => format!("cd {} && ", clean(&quoted(&args.dir))),
    };
    if let Some(existing) = existing(args, template, &dir, &files)? {
        return Err(error::usage(
            existing,
            format!(
                "nothing was changed; run it with `{there}fabro run {}`, or choose another directory",
                template.name
            ),
        ));
    }
    let mut text = String::new();
    for (name, content) in &files {
        let path = dir.join(name);
        write(&path, content).map_err(|error| {
            let what = format!("{} cannot be created", dir.display());
            error::unwritable(&what, &error, "choose another directory")
        })?;
        let _ = writeln!(text, "{}", clean(&path.to_string_lossy()));
    }
    if let Some(path) = write_settings(&args.dir)? {
        let _ = writeln!(text, "{}", clean(&path.to_string_lossy()));
    }
    let _ = writeln!(text, "\nrun it with: {there}fabro run {}", template.name);
    output::text(&text)?;
    Ok(Exit::SUCCEEDED)
}

/// What the template would overwrite, or hide: `NAME.fabro` is not found any more beside a folder `NAME`.
fn existing(
    args: &InitArgs,
    template: &Template,
    dir: &Path,
    files: &[(&str, Cow<'_, str>)],
) -> anyhow::Result<Option<String>> {
    let paths = files.iter().map(|(name, _)| dir.join(name));
    if let Some(path) = paths.into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Ok(Some(format!("{} exists already", path.display())));
    }
    let project = std::path::absolute(&args.dir)?;
    let found = match fabro_config::locate(template.name, &project, home().as_deref()) {
        Ok(target) => target.run_file.map_or(target.workflow_file, |file| file.path),
        Err(ConfigError::Invalid(findings)) => findings.path,
        Err(ConfigError::NoWorkflow { .. } | ConfigError::OtherFile(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // A workflow of an enclosing project stays that of its own folder.
    Ok(found.strip_prefix(&project).ok().map(|found| {
        let found = args.dir.strip_prefix(".").unwrap_or(&args.dir).join(found);
        format!("this project has a workflow `{}`: {}", template.name, found.display())
    }))
}

/// The settings of a new project.
const SETTINGS: &str = r#"_version = 1

[run]
# What follows when a stage fails and no edge of the workflow handles it.
# "stop" ends the run there as failed. "route" continues by plain edges, and the run
# ends partially_succeeded, with exit code 1. A workflow (graph [on_failure=...]) or a
# node can override it.
on_failure = "stop"
# US dollars after which a run pauses; `fabro resume RUN --max-cost USD` continues it.
# max_cost = 5.0
"#;

/// Writes the project's settings, unless it has some.
fn write_settings(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let path = dir.strip_prefix(".").unwrap_or(dir).join(".fabro").join("config.toml");
    if path.symlink_metadata().is_ok() {
        return Ok(None);
    }
    write(&path, SETTINGS).map_err(|error| {
        let what = format!("{} cannot be created", path.display());
        error::unwritable(&what, &error, "choose another directory")
    })?;
    Ok(Some(path))
}

#[expect(clippy::needless_pass_by_value, reason = "clap's parsers give what they own")]
fn template(name: String) -> Result<&'static Template, String> {
    TEMPLATES
        .iter()
        .find(|it| it.name == name)
        .ok_or_else(|| format!("no template is named {name}"))
}

/// A file of a template as it is in a project: the run.toml has the name by which a project's workflows are found, and
/// what names the folder of the example names the workflow.
fn file(
    template: &Template,
    name: &'static str,
    content: &'static str,
) -> (&'static str, Cow<'static, str>) {
    let example = format!("examples/{}/", template.name);
    let content = if content.contains(&example) {
        let named = content.replace(&format!("{example}run.toml"), template.name);
        let dir = format!(".fabro/workflows/{}/", template.name);
        Cow::Owned(named.replace(&example, &dir))
    } else {
        Cow::Borrowed(content)
    };
    (if name == "run.toml" { "workflow.toml" } else { name }, content)
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content.as_bytes())
}

fn list(paint: Paint) -> String {
    let mut table = Table::new(&[("template", Align::Left), ("what it shows", Align::Left)]);
    for template in TEMPLATES {
        table.row([template.name.to_owned(), template.about.to_owned()]);
    }
    let table = table.render(paint, |_, cell| cell.to_owned());
    format!("{table}\ncreate one here with: fabro init --template NAME\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_every_example_is_in_a_template() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut found = BTreeSet::new();
        for entry in walkdir(&examples) {
            let path = entry.strip_prefix(&examples).unwrap().to_str().unwrap().to_owned();
            // The list of the examples belongs to no example.
            found.extend((path != "README.md").then_some(path));
        }
        let named = TEMPLATES.iter().skip(1).flat_map(|template| {
            template.files.iter().map(|(name, _)| format!("{}/{name}", template.name))
        });
        assert_eq!(named.collect::<BTreeSet<_>>(), found);
    }

    fn walkdir(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { walkdir(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn the_folder_of_an_example_becomes_the_workflow() {
        let template = TEMPLATES.iter().find(|template| template.name == "release").unwrap();
        let read = |name: &'static str| {
            let (_, content) = template.files.iter().find(|(it, _)| *it == name).unwrap();
            file(template, name, content)
        };
        assert_eq!(read("run.toml").0, "workflow.toml");
        let (_, readme) = read("README.md");
        assert!(
            readme.contains("fabro run release --answers .fabro/workflows/release/answers.json")
        );
    }
}
