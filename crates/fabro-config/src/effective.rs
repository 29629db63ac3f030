//! The settings in force and their sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabro_types::{LineIndex, Severity};
use serde::Serialize;
use serde_json::{Value, json};

use crate::detect::detect_providers;
use crate::error::{ConfigError, Findings};
use crate::reader::review;
use crate::review::SettingsFile;
use crate::trust::read_trusted;

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EffectiveSetting {
    /// Its dotted name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// Where it is set.
    #[serde(flatten)]
    pub source: SettingSource,
}

/// Where a setting is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SettingSource {
    /// In a file.
    File {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// By a variable of the environment.
    Environment {
        /// The name of the variable.
        variable: String,
    },
    /// Nowhere: it is the default.
    Default,
}

/// Default values, as JSON.
const DEFAULTS: [(&str, &str); 19] = [
    ("run.agent.compaction.preset", r#""fabro""#),
    ("run.agent.max_turns", "200"),
    ("run.agent.permissions", r#""read-write""#),
    ("run.agent.preamble.compact_tokens", "8000"),
    ("run.agent.preamble.high_tokens", "32000"),
    ("run.agent.project_docs", "true"),
    ("run.execution.approval", r#""prompt""#),
    ("run.execution.mode", r#""normal""#),
    ("run.git.author.email", r#""fabro@localhost""#),
    ("run.git.author.name", r#""Fabro""#),
    ("run.git.diff", "true"),
    ("run.git.metadata", "false"),
    ("run.git.worktree", "false"),
    ("run.model.script_when", r#""no_provider""#),
    ("run.on_failure", r#""route""#),
    ("run.on_unavailable", r#""pause""#),
    ("run.resume_threads", "false"),
    ("run.sandbox.preserve", "false"),
    ("run.sandbox.provider", r#""local""#),
];

/// Tables whose entries a stronger file replaces as a whole, with the number of parts of an entry's name.
const REPLACED_WHOLE: [(&str, usize); 3] =
    [("providers.", 2), ("models.", 2), ("run.agent.mcp.", 4)];

/// Lists that are concatenated over all files.
const CONCATENATED: [&str; 3] = ["run.hooks", "run.agent.tools", "webhooks"];

/// Tables whose entries are separate settings.
const ENTRY_TABLES: [&str; 2] = ["run.inputs", "run.sandbox.env"];

/// Settings that depend on another one: when a stronger file sets the other one, a weaker file's value is ignored.
const DEPENDENT: [(&str, &str); 2] =
    [("run.model.provider", "run.model.name"), ("run.model.script_when", "run.model.script")];

/// The effective settings of the project with this root, sorted by name: from these files (highest precedence first),
/// from the environment variables of providers, which `lookup` reads, and from the defaults.
///
/// # Errors
///
/// A file cannot be read, has errors, or [`check_owner`](crate::check_owner) refuses it.
pub fn effective_settings(
    root: &Path,
    files: &[(PathBuf, SettingsFile)],
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Vec<EffectiveSetting>, ConfigError> {
    let mut found: Vec<EffectiveSetting> = Vec::new();
    for (path, kind) in files {
        let stronger: BTreeSet<String> = found.iter().map(|it| it.name.clone()).collect();
        let own = settings_of(root, path.clone(), *kind)?;
        found.extend(own.into_iter().filter(|it| is_in_force(&it.name, &stronger)));
    }
    for provider in detect_providers(&lookup) {
        let name = format!("providers.{}", provider.name);
        let is_configured = found
            .iter()
            .any(|it| it.name.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('.')));
        let base_url = format!("{}_BASE_URL", provider.name.to_uppercase());
        if !is_configured {
            let value = json!({"kind": provider.kind.as_str()});
            let source =
                SettingSource::Environment { variable: provider.api_key_env.unwrap_or(base_url) };
            found.push(EffectiveSetting { name, value, source });
        }
    }
    for (name, value) in DEFAULTS {
        if !found.iter().any(|it| it.name == name) {
            let value = value.parse().unwrap_or_default();
            let source = SettingSource::Default;
            found.push(EffectiveSetting { name: name.to_owned(), value, source });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Whether no stronger file overrides a setting.
fn is_in_force(name: &str, stronger: &BTreeSet<String>) -> bool {
    if CONCATENATED.contains(&name) {
        return true;
    }
    if let Some((_, parts)) = REPLACED_WHOLE.iter().find(|(table, _)| name.starts_with(table)) {
        let entry: Vec<&str> = name.split('.').take(*parts).collect();
        let entry = entry.join(".") + ".";
        return !stronger.iter().any(|it| it.starts_with(&entry));
    }
    let depends_on = DEPENDENT.iter().find(|(own, _)| *own == name).map(|(_, other)| *other);
    !stronger.contains(name) && depends_on.is_none_or(|other| !stronger.contains(other))
}

/// All settings of a file.
fn settings_of(
    root: &Path,
    path: PathBuf,
    kind: SettingsFile,
) -> Result<Vec<EffectiveSetting>, ConfigError> {
    let text = read_trusted(&path, root)?;
    let (checked, review) = review(&text, kind.schema());
    if review.findings.iter().any(|finding| finding.severity == Severity::Error) {
        let list = review.findings;
        return Err(ConfigError::Invalid(Box::new(Findings { path, text, list })));
    }
    let lines = LineIndex::new(&text);
    let mut found: Vec<EffectiveSetting> = Vec::new();
    for (name, at) in review.settings {
        let is_inside = CONCATENATED
            .iter()
            .chain(&["run.prepare.steps"])
            .any(|list| name.starts_with(&format!("{list}.")));
        let Some(value) = checked.get(&name).filter(|_| !is_inside && name != "_version") else {
            continue;
        };
        // A duration was read into its parts.
        let duration = Some(value).filter(|value| value.is_object());
        let duration = duration.and_then(|it| serde_json::from_value::<Duration>(it.clone()).ok());
        let value = &duration.map_or_else(|| value.clone(), |it| Value::from(format!("{it:?}")));
        let line = lines.position(at.start).line;
        let mut add = |name: String, value: &Value| {
            let source = SettingSource::File { file: path.clone(), line };
            // A file may also have upstream's name of the setting: ours wins.
            if !found.iter().any(|it| it.name == name) {
                found.push(EffectiveSetting { name, value: value.clone(), source });
            }
        };
        match value.as_object().filter(|_| ENTRY_TABLES.contains(&&*name)) {
            Some(table) => {
                table.iter().for_each(|(key, value)| add(format!("{name}.{key}"), value));
            }
            None => add(name, value),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::schema::{CONFIG_FILE, RUN_FILE};

    #[test]
    fn defaults_are_known_settings_with_valid_values() {
        let known = |name: &str| {
            [CONFIG_FILE, RUN_FILE]
                .into_iter()
                .flatten()
                .copied()
                .flatten()
                .any(|(it, _)| *it == name)
        };
        for (name, value) in DEFAULTS {
            assert!(known(name) && value.parse::<Value>().is_ok(), "{name}");
        }
    }

    #[test]
    fn the_strongest_file_wins() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("run.toml", SettingsFile::Run, "_version = 1\n[run]\nmax_time = '2h'\n[run.inputs]\na = 1\n[run.model]\nname = 'x'\n"),
            (
                "config.toml",
                SettingsFile::Config,
                "_version = 1\n[run.model]\nname = 'y'\nprovider = 'p'\n[providers.p]\nkind = 'openai'\n
                [[run.hooks]]\nevent = 'run_complete'\ncommand = 'true'\n",
            ),
            (
                "user.toml",
                SettingsFile::Config,
                "_version = 1\n[llm]\nfallbacks = ['f']\n[providers.p]\nkind = 'openai'\nbase_url = 'http://x'\n[run.agent]\nmax_turns = 3\n
                [[run.hooks]]\nevent = 'run_start'\ncommand = 'true'\n",
            ),
        ];
        let files = files.map(|(name, kind, text)| {
            std::fs::write(dir.path().join(name), text).unwrap();
            (dir.path().join(name), kind)
        });
        let env = |name: &str| {
            ["GEMINI_API_KEY", "OPENAI_BASE_URL"].contains(&name).then(|| "secret".to_owned())
        };
        let mut text = String::new();
        for setting in effective_settings(dir.path(), &files, env).unwrap() {
            let source = match setting.source {
                SettingSource::File { file, line } => {
                    format!("{}:{line}", file.file_name().unwrap().to_string_lossy())
                }
                SettingSource::Environment { variable } => variable,
                SettingSource::Default => continue,
            };
            let _ = writeln!(text, "{} = {}  {source}", setting.name, setting.value);
        }
        insta::assert_snapshot!(text, @r#"
        providers.gemini = {"kind":"gemini"}  GEMINI_API_KEY
        providers.openai = {"kind":"openai"}  OPENAI_BASE_URL
        providers.p.kind = "openai"  config.toml:6
        run.agent.max_turns = 3  user.toml:8
        run.hooks = [{"event":"run_complete","script":"true","blocking":false}]  config.toml:8
        run.hooks = [{"event":"run_start","script":"true","blocking":true}]  user.toml:10
        run.inputs.a = 1  run.toml:4
        run.max_time = "7200s"  run.toml:3
        run.model.fallbacks = ["f"]  user.toml:3
        run.model.name = "x"  run.toml:7
        "#);
    }

    #[test]
    fn a_broken_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, "_version = 1\n[run.agent]\nmax_turns = 'x'\n").unwrap();
        let error =
            effective_settings(dir.path(), &[(path, SettingsFile::Config)], |_| None).unwrap_err();
        assert!(error.to_string().contains("run.agent.max_turns"), "{error}");
    }
}
