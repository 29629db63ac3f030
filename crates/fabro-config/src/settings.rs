use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabro_types::control_files::{FABRO_DIR, SETTINGS_FILES};
use fabro_types::{Diagnostic, ModelInfo, OnFailure, OnUnavailable};
use serde_json::{Map, Value};

use crate::agent::AgentSettings;
use crate::checked_settings::CheckedSettings;
use crate::concurrency::Concurrency;
use crate::error::{ConfigError, Findings};
use crate::file::expand;
use crate::git::GitSettings;
use crate::hooks::{Hook, joined};
use crate::model::ModelSettings;
use crate::named::goal_text;
use crate::provider::ProviderSettings;
use crate::reader::{Unsupported, read};
use crate::review::SettingsFile;
use crate::run::{ArtifactPatterns, Execution, PrepareStep, take_prepare};
use crate::sandbox::SandboxSettings;
use crate::schema::{CONFIG_FILE, Schema};
use crate::store_dir::{STORE_DIR, project_dir, project_dirs, project_root};
use crate::telemetry::TelemetrySettings;
use crate::trust::{MAX_LINKS, is_unprotected, read_trusted};
use crate::webhooks::{self, Webhook};

/// What a project (`.fabro/config.toml`) or a user (`~/.config/fabro/config.toml`) sets for all
/// runs. A model named anywhere else comes before the one named here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `run.model`.
    pub model: ModelSettings,
    /// `run.agent`.
    pub agent: AgentSettings,
    /// `run.on_failure`: what follows a failure, unless the workflow sets it.
    pub on_failure: Option<OnFailure>,
    /// `run.max_cost`: the spending limit in US dollars of a workflow without its own.
    pub max_cost: Option<f64>,
    /// `run.command_timeout`: the timeout of commands without their own.
    pub command_timeout: Option<Duration>,
    /// `run.on_unavailable`: what follows when no model or agent is available, where the workflow
    /// does not say.
    pub on_unavailable: Option<OnUnavailable>,
    /// `run.retry_unavailable`: after which time a run that paused because of that retries.
    pub retry_unavailable: Option<Duration>,
    /// `run.resume_threads`: the first stages after a resume continue the conversations of their threads.
    pub resume_threads: Option<bool>,
    /// `run.max_time`: the total time that the run may be driven.
    pub max_time: Option<Duration>,
    /// `run.concurrency`: how many runs with the same key may be driven concurrently.
    pub concurrency: Option<Concurrency>,
    /// `run.sandbox`: what confines scripts and agents. [`settings`] makes its paths absolute.
    pub sandbox: SandboxSettings,
    /// `run.hooks`: what is run or requested at events, the weakest settings first.
    pub hooks: Vec<Hook>,
    /// `telemetry`: where the traces of runs are sent.
    pub telemetry: TelemetrySettings,
    /// `webhooks`: where a server sends the events of runs.
    pub webhooks: Vec<Webhook>,
    /// `providers`: providers of models, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// `models`: what overrides the built-in catalog, by name.
    pub models: BTreeMap<String, ModelInfo>,
    /// What every run of the project is started with, by its `.fabro/project.toml`.
    pub defaults: RunDefaults,
}

/// What upstream's project files (`.fabro/project.toml`, `fabro.toml`) set for every run of a project,
/// where its run.toml does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunDefaults {
    /// `run.goal`, read from its file.
    pub goal: Option<String>,
    /// `run.inputs`.
    pub inputs: Map<String, Value>,
    /// `run.sandbox.env`.
    pub env: BTreeMap<String, String>,
    /// `run.prepare.steps`.
    pub prepare: Vec<PrepareStep>,
    /// `run.execution`.
    pub execution: Execution,
    /// `run.git`.
    pub git: GitSettings,
    /// `run.artifacts`.
    pub artifacts: ArtifactPatterns,
}

impl RunDefaults {
    fn take(checked: &mut CheckedSettings) -> Self {
        Self {
            goal: checked.take("/run/goal"),
            inputs: checked.take("/run/inputs"),
            env: checked.take("/run/sandbox/env"),
            prepare: take_prepare(checked),
            execution: Execution::take(checked),
            git: GitSettings::take(checked),
            artifacts: ArtifactPatterns::take(checked),
        }
    }

    fn or(self, weaker: Self) -> Self {
        let mut inputs = weaker.inputs;
        inputs.extend(self.inputs);
        let mut env = weaker.env;
        env.extend(self.env);
        Self {
            goal: self.goal.or(weaker.goal),
            inputs,
            env,
            prepare: if self.prepare.is_empty() { weaker.prepare } else { self.prepare },
            execution: self.execution.or(weaker.execution),
            git: self.git.or(weaker.git),
            artifacts: self.artifacts.or(weaker.artifacts),
        }
    }
}

impl Settings {
    /// These settings, completed from weaker ones. A provider belongs to the model named beside it:
    /// the weaker one's is taken only when the name is taken from there too. Providers and models
    /// are taken as a whole, by name; settings of agents one by one; hooks and webhooks of both hold.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        let strong = self.model;
        let weak = weaker.model;
        let provider = match strong.name {
            Some(_) => strong.provider,
            None => strong.provider.or(weak.provider),
        };
        let fallbacks = if strong.fallbacks.is_empty() { weak.fallbacks } else { strong.fallbacks };
        // When a script answers is said beside it.
        let script_when = match strong.script {
            Some(_) => strong.script_when,
            None => strong.script_when.or(weak.script_when),
        };
        let model = ModelSettings {
            name: strong.name.or(weak.name),
            provider,
            fallbacks,
            script: strong.script.or(weak.script),
            script_when,
        };
        let mut providers = weaker.providers;
        providers.extend(self.providers);
        let mut models = weaker.models;
        models.extend(self.models);
        Self {
            model,
            agent: self.agent.or(weaker.agent),
            on_failure: self.on_failure.or(weaker.on_failure),
            max_cost: self.max_cost.or(weaker.max_cost),
            command_timeout: self.command_timeout.or(weaker.command_timeout),
            on_unavailable: self.on_unavailable.or(weaker.on_unavailable),
            retry_unavailable: self.retry_unavailable.or(weaker.retry_unavailable),
            resume_threads: self.resume_threads.or(weaker.resume_threads),
            max_time: self.max_time.or(weaker.max_time),
            concurrency: self.concurrency.or(weaker.concurrency),
            sandbox: self.sandbox.or(weaker.sandbox),
            hooks: joined(weaker.hooks, self.hooks),
            telemetry: self.telemetry.or(weaker.telemetry),
            webhooks: webhooks::joined(weaker.webhooks, self.webhooks),
            providers,
            models,
            defaults: self.defaults.or(weaker.defaults),
        }
    }
}

/// Reads the text of a `config.toml`. The warnings are unknown keys and a missing `_version`.
///
/// # Errors
///
/// Everything found in the file, in its order, at least one of them an error.
pub fn parse_settings(text: &str) -> Result<(Settings, Vec<Diagnostic>), Vec<Diagnostic>> {
    parse_with(text, CONFIG_FILE, Unsupported::Refused)
}

fn parse_with(
    text: &str,
    schema: Schema,
    unsupported: Unsupported,
) -> Result<(Settings, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (mut checked, warnings) = read(text, schema, unsupported)?;
    let settings = Settings {
        defaults: RunDefaults::take(&mut checked),
        model: checked.take("/run/model"),
        agent: checked.take("/run/agent"),
        on_failure: checked.take("/run/on_failure"),
        max_cost: checked.take("/run/max_cost"),
        command_timeout: checked.take("/run/command_timeout"),
        on_unavailable: checked.take("/run/on_unavailable"),
        retry_unavailable: checked.take("/run/retry_unavailable"),
        resume_threads: checked.take("/run/resume_threads"),
        max_time: checked.take("/run/max_time"),
        concurrency: checked.take("/run/concurrency"),
        sandbox: SandboxSettings::take(&mut checked),
        hooks: checked.take("/run/hooks"),
        telemetry: checked.take("/telemetry"),
        webhooks: checked.take("/webhooks"),
        providers: checked.take("/providers"),
        models: checked.take("/models"),
    };
    Ok((settings, warnings))
}

/// The user's settings file: `fabro/config.toml` in `config_home` (the value of `XDG_CONFIG_HOME`,
/// ignored unless it is absolute), else in `.config` of `home`.
pub fn user_settings_file(config_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let config = config_home.filter(|dir| dir.is_absolute()).map(Path::to_owned);
    let dir = config.or_else(|| home.map(|home| home.join(".config")))?;
    Some(dir.join("fabro").join("config.toml"))
}

/// The settings files that hold in `cwd`, the strongest first. They exist.
pub fn settings_files(cwd: &Path, user_file: Option<&Path>) -> Vec<(PathBuf, SettingsFile)> {
    let nearest = |name: &str| project_dirs(cwd).map(|dir| dir.join(name)).find(|it| it.is_file());
    let kinds = [SettingsFile::Config, SettingsFile::Project, SettingsFile::Project];
    let own = SETTINGS_FILES.into_iter().zip(kinds).map(|(name, kind)| (nearest(name), kind));
    let user = user_file.filter(|file| file.is_file()).map(Path::to_owned);
    let files = own.chain([(user, SettingsFile::Config)]);
    files.filter_map(|(path, kind)| Some((path?, kind))).collect()
}

/// The settings in force in `cwd`: those of the nearest `.fabro/config.toml` between it and the root of its project
/// ([`project_dir`](crate::project_dir)), completed from the nearest `.fabro/project.toml` and `fabro.toml` of upstream
/// there, then from `user_file`; a file that does not exist sets nothing. With them, the warnings of each file that has
/// any. `home` is what `~` stands for.
///
/// # Errors
///
/// A file that cannot be read, has an error, or that [`check_owner`](crate::check_owner) refuses; `cwd` is in a git repository without
/// settings in a project with settings.
pub fn settings(
    cwd: &Path,
    user_file: Option<&Path>,
    home: Option<&Path>,
) -> Result<(Settings, Vec<Findings>), ConfigError> {
    settings_as(cwd, user_file, home, Unsupported::Refused)
}

/// Like [`settings`], with unsupported settings of upstream treated in this way.
///
/// # Errors
///
/// As [`settings`].
pub fn settings_as(
    cwd: &Path,
    user_file: Option<&Path>,
    home: Option<&Path>,
    unsupported: Unsupported,
) -> Result<(Settings, Vec<Findings>), ConfigError> {
    refuse_nested_project(cwd)?;
    refuse_writable_user_file(user_file, project_root(cwd))?;
    let mut settings = Settings::default();
    let mut warnings = Vec::new();
    for (path, kind) in settings_files(cwd, user_file) {
        let text = read_trusted(&path, project_root(cwd))?;
        let (mut read, list) = match parse_with(&text, kind.schema(), unsupported) {
            Ok(read) => read,
            Err(list) => return Err(ConfigError::Invalid(Box::new(Findings { path, text, list }))),
        };
        let dir = path.parent().unwrap_or(cwd);
        read.model.script = read.model.script.map(|script| expand(dir, home, &script));
        read.agent = read.agent.resolved(&path, home)?;
        read.sandbox = read.sandbox.resolved(dir, home);
        if let Some(goal) = read.defaults.goal.take() {
            read.defaults.goal = Some(goal_text(&path, home, &goal)?);
        }
        settings = settings.or(read);
        if !list.is_empty() {
            warnings.push(Findings { path, text, list });
        }
    }
    Ok((settings, warnings))
}

/// Refuses to work where agents could write the user's settings: `XDG_CONFIG_HOME` may put them under
/// any name in the project. Whether the file exists does not matter.
fn refuse_writable_user_file(user_file: Option<&Path>, root: &Path) -> Result<(), ConfigError> {
    let Some(file) = user_file else { return Ok(()) };
    let real_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    if is_unprotected(file, root) || is_unprotected(&resolved(file), &real_root) {
        return Err(ConfigError::UserFile { file: file.to_owned(), root: root.to_owned() });
    }
    Ok(())
}

/// A path with its links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.with_file_name("").join(target),
            Err(_) => break,
        }
    }
    let parent = path.ancestors().find_map(|dir| Some((dir, dir.canonicalize().ok()?)));
    let Some((dir, real)) = parent else { return path };
    path.strip_prefix(dir).map_or_else(|_| real.clone(), |rest| real.join(rest))
}

/// Refuses a nested project without settings (a `.git` or a store) that hides the settings of the
/// enclosing project: any script may have created it, and the hidden settings may require a
/// sandbox.
fn refuse_nested_project(cwd: &Path) -> Result<(), ConfigError> {
    let own_files = |dir: &Path| settings_files(dir, None);
    // A store alone does not count as settings: commands create one.
    let has_more = |dir: &Path| {
        let mut entries = dir.join(FABRO_DIR).read_dir().into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name() != STORE_DIR)
    };
    let Some(inner) = project_dir(cwd) else { return Ok(()) };
    if has_more(inner) || !own_files(cwd).is_empty() {
        return Ok(());
    }
    let mut above = inner.parent();
    while let Some(dir) = above
        && let Some(project) = project_dir(dir)
    {
        if !own_files(dir).is_empty() {
            let [inner, project] = [inner, project].map(Path::to_owned);
            return Err(ConfigError::NestedProject { inner, project });
        }
        above = project.parent();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn named(name: Option<&str>, provider: Option<&str>) -> Settings {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let model =
            ModelSettings { name: own(name), provider: own(provider), ..ModelSettings::default() };
        Settings { model, ..Settings::default() }
    }

    #[test]
    fn a_provider_stays_with_its_model() {
        let weak = || named(Some("weak"), Some("w"));
        let check = |strong: Settings, expect: Settings| assert_eq!(strong.or(weak()), expect);
        check(named(None, None), weak());
        check(named(Some("strong"), None), named(Some("strong"), None));
        check(named(None, Some("s")), named(Some("weak"), Some("s")));
    }

    #[test]
    fn the_project_wins_and_paths_are_relative_to_each_file() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("deep/er");
        fs::create_dir_all(&cwd).unwrap();
        fs::create_dir(dir.path().join(".fabro")).unwrap();
        let project = dir.path().join(".fabro/config.toml");
        let home = tempfile::tempdir().unwrap();
        let user = home.path().join("user.toml");
        fs::write(&project, "_version = 1\n[run.model]\nscript = 'p.json'\nmodel = 'x'\n").unwrap();
        fs::write(&user, "_version = 1\n[run.model]\nname = 'm'\nscript = '~/u.json'\n").unwrap();
        let (both, warnings) = settings(&cwd, Some(&user), Some(Path::new("/home/x"))).unwrap();
        assert_eq!(both.model.name.as_deref(), Some("m"));
        assert_eq!(both.model.script, Some(dir.path().join(".fabro/p.json")));
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].list[0].message, "`run.model.model` is not a setting");
        fs::remove_file(project).unwrap();
        let (only, _) = settings(&cwd, Some(&user), Some(Path::new("/home/x"))).unwrap();
        assert_eq!(only.model.script.as_deref(), Some(Path::new("/home/x/u.json")));
        let (none, _) = settings(&cwd, None, None).unwrap();
        assert_eq!(none, Settings::default());
    }

    #[test]
    fn user_settings_that_agents_may_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let check = |file: &str, expect: bool| {
            let user = dir.path().join(file);
            let refused = settings(dir.path(), Some(&user), None);
            let is_refused = matches!(refused, Err(ConfigError::UserFile { .. }));
            assert_eq!(is_refused, expect, "{file}");
        };
        check(".xdg/fabro/config.toml", true);
        check(".config/fabro/config.toml", false);
        check("/elsewhere/fabro/config.toml", false);
        // Through links, also where the file does not exist yet.
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dotfiles")).unwrap();
        symlink(dir.path().join("dotfiles"), home.path().join("fabro")).unwrap();
        symlink(dir.path().join("config.toml"), home.path().join("config.toml")).unwrap();
        check(home.path().join("fabro/config.toml").to_str().unwrap(), true);
        check(home.path().join("config.toml").to_str().unwrap(), true);
        check(home.path().join("other/config.toml").to_str().unwrap(), false);
    }

    #[test]
    fn a_repository_in_a_project_has_settings_of_its_own_or_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("project/sub");
        let cwd = sub.join("deeper");
        fs::create_dir_all(&cwd).unwrap();
        let put = |path: &str| {
            let path = dir.path().join("project").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let check = |expect: bool| assert_eq!(settings(&cwd, None, None).is_ok(), expect);
        put("sub/.fabro/state/fabro.db");
        check(true);
        put(".fabro/state/fabro.db");
        check(true);
        fs::write(dir.path().join("project/.fabro/config.toml"), "_version = 1\n").unwrap();
        check(false);
        fs::remove_dir_all(sub.join(".fabro")).unwrap();
        check(true);
        put("sub/.git/HEAD");
        let error = settings(&cwd, None, None).unwrap_err().to_string();
        let error = error.replace(&dir.path().display().to_string(), "DIR");
        insta::assert_snapshot!(error, @"DIR/project/sub has no settings, and the settings of the enclosing project DIR/project do not apply here: create DIR/project/sub/.fabro (fabro init), or run in DIR/project");
        // Another one, nearer or between them, changes nothing.
        put("sub/deeper/.git/HEAD");
        check(false);
        put("sub/deeper/.fabro/state/fabro.db");
        check(false);
        put("sub/deeper/.fabro/workflows/x.fabro");
        check(true);
    }

    #[test]
    fn settings_behind_a_link_that_agents_may_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".fabro/workflows")).unwrap();
        fs::write(dir.path().join("settings.toml"), "_version = 1\n").unwrap();
        let link = |name: &str| {
            let path = dir.path().join(name);
            std::os::unix::fs::symlink(dir.path().join("settings.toml"), &path).unwrap();
            path
        };
        let project = link(".fabro/config.toml");
        let is_link = |error| matches!(error, ConfigError::Link { .. });
        assert!(is_link(settings(dir.path(), None, None).unwrap_err()));
        fs::remove_file(project).unwrap();
        let user = link("user.toml");
        fs::rename(&user, dir.path().join(".fabro/user.toml")).unwrap();
        let user = dir.path().join(".fabro/user.toml");
        let refused = settings(dir.path(), Some(&user), None);
        assert!(matches!(refused, Err(ConfigError::UserFile { .. })));
        settings(dir.path(), None, None).unwrap();
        // Run files, and workflows by path and by name.
        let locate = |arg| crate::locate(arg, dir.path(), None).unwrap_err();
        link("run.toml");
        assert!(is_link(locate("run.toml")));
        link("w.fabro");
        assert!(is_link(locate("w.fabro")));
        link(".fabro/workflows/x.fabro");
        assert!(is_link(locate("x")));
    }

    #[test]
    fn a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join(".config/fabro/config.toml");
        fs::create_dir_all(user.parent().unwrap()).unwrap();
        fs::write(&user, "_version = 2").unwrap();
        let error = settings(dir.path(), Some(&user), None).unwrap_err().to_string();
        let error = error.replace(&dir.path().display().to_string(), "DIR");
        insta::assert_snapshot!(error, @"DIR/.config/fabro/config.toml:1:12: `_version` is 2, and this fabro reads version 1 (use a newer fabro for this file)");
    }

    #[test]
    fn the_user_file_follows_the_desktop_convention() {
        let file = |config: Option<&str>, home: Option<&str>| {
            user_settings_file(config.map(Path::new), home.map(Path::new))
        };
        assert_eq!(file(Some("/c"), Some("/h")), Some("/c/fabro/config.toml".into()));
        assert_eq!(file(Some("c"), Some("/h")), Some("/h/.config/fabro/config.toml".into()));
        assert_eq!(file(None, None), None);
    }
}
