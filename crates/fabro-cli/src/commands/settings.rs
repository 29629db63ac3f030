//! `fabro settings`.

use clap_complete::ArgValueCompleter;
use fabro_config::{
    EffectiveSetting, SettingSource, SettingsFile, effective_settings, project_root, settings_files,
};
use fabro_redact::is_secret_name;
use fabro_terminal::{Align, Table};
use serde_json::Value;

use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, cwd, home, stdout_width, user_file};
use crate::output;
use crate::workflow_files::shown;

/// Show the settings in force and their sources
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro settings\n  fabro settings hello\n  fabro settings --json | jq '.[] | select(.source == \"file\")'\n\nSettings name the environment variables of keys and other secrets; their values are not shown."
)]
pub struct SettingsArgs {
    /// Include the settings of this run.toml, or of the workflow NAME
    #[arg(add = ArgValueCompleter::new(complete::workflows))]
    pub workflow: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows the settings in force.
pub fn settings(args: &SettingsArgs, global: &Global) -> anyhow::Result<Exit> {
    let cwd = cwd()?;
    let mut files = Vec::new();
    if let Some(name) = &args.workflow {
        let target = fabro_config::locate(name, &cwd, home().as_deref())?;
        files.extend(target.run_file.map(|file| (file.path, SettingsFile::Run)));
    }
    files.extend(settings_files(&cwd, user_file().as_deref()));
    let mut found =
        effective_settings(project_root(&cwd), &files, |name| std::env::var(name).ok())?;
    for setting in &mut found {
        hide(setting);
    }
    output::report(args.json, &found, || {
        let columns = [("setting", Align::Left), ("value", Align::Left), ("from", Align::Left)];
        let mut table = Table::new(&columns);
        for EffectiveSetting { name, value, source, .. } in &found {
            let from = match source {
                SettingSource::File { file, line } => format!("{}:{line}", shown(file, &cwd)),
                SettingSource::Environment { variable } => format!("{variable} is set"),
                _ => "default".to_owned(),
            };
            table.row([name.clone(), value.to_string(), from]);
        }
        let paint = global.paint_stdout();
        table.within(stdout_width()).render(paint, |column, cell| match (column, cell) {
            (2, "default") => paint.dim(cell),
            _ => cell.to_owned(),
        })
    })?;
    Ok(Exit::SUCCEEDED)
}

/// Hides a literal secret: `run.sandbox.env` may contain one.
fn hide(setting: &mut EffectiveSetting) {
    let key = setting.name.strip_prefix("run.sandbox.env.");
    let is_literal =
        setting.value.as_str().is_some_and(|text| !text.contains('$') && !text.contains("{{"));
    if is_literal && key.is_some_and(is_secret_name) {
        setting.value = Value::from("(hidden)");
    }
}
