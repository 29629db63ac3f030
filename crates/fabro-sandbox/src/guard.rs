//! Guards working directories against new control files of scripts in a sandbox.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabro_types::ControlFile;
use fabro_types::running_scripts::{scripts_ended, scripts_run};
use rustix::fs::{AtFlags, RenameFlags, renameat, renameat_with, statat, symlinkat};
use rustix::io::Errno;

use crate::ExecError;
use crate::baseline::{BaselineFile, check_left};
use crate::control::{ControlFiles, Scope, link_id};
use crate::files::beneath;
use crate::log::{OutputChannel, OutputSink};
use crate::walk::{WalkError, is_gone, make_accessible};

/// The working directories of this process, each with one baseline for all scripts that run in it at the same time: a
/// script must not take the new file of another one for an old file.
static GUARDED: Mutex<BTreeMap<Scope, Arc<Guarded>>> = Mutex::new(BTreeMap::new());

/// A guarded working directory.
#[derive(Debug)]
struct Guarded {
    scope: Scope,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    /// The control files from before the first script. It stays until a check succeeds while no script runs.
    baseline: Option<ControlFiles>,
    /// How many scripts run.
    scripts: usize,
    /// What was renamed and not yet reported.
    unreported: String,
    /// Copies of the baseline, for a successor of this process.
    files: BTreeMap<PathBuf, BaselineFile>,
}

impl Guarded {
    fn of(scope: Scope) -> Arc<Self> {
        let mut all = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
        let new = |scope: &Scope| Arc::new(Self { scope: scope.clone(), state: Mutex::default() });
        Arc::clone(all.entry(scope).or_insert_with_key(new))
    }

    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the directory with its baseline. After a success while no script runs, the baseline is not needed any
    /// more.
    fn check(&self, state: &mut GuardState) -> Check {
        let Some(baseline) = &state.baseline else { return Check::default() };
        let mut check = check(&self.scope, baseline);
        check.renamed.insert_str(0, &std::mem::take(&mut state.unreported));
        if check.error.is_none() && state.scripts == 0 {
            *state = GuardState::default();
            scripts_ended(&self.scope.root);
        }
        check
    }
}

/// Renames control files that scripts create. Dropping it before the script has ended keeps the baseline for the next
/// check.
#[derive(Debug)]
pub(crate) struct ControlGuard {
    guarded: Arc<Guarded>,
    /// The control files at the start of the script, without those that an earlier one has created.
    pub(crate) found: ControlFiles,
    /// The links among them with their targets: nothing can be mounted on a link, so a script can remove it.
    links: Vec<(PathBuf, PathBuf)>,
    is_done: bool,
}

impl ControlGuard {
    /// Guards a directory from now on. The baseline is also written to `state_dir`, which scripts must not see.
    ///
    /// # Errors
    ///
    /// The directory cannot be searched, or the baseline not be written.
    pub(crate) fn begin(scope: Scope, state_dir: &Path) -> Result<Self, ExecError> {
        let guarded = Guarded::of(scope);
        let mut state = guarded.state();
        let (mut found, walked) = guarded.scope.control_files();
        walked.map_err(unguarded)?;
        let state_now = &mut *state;
        let baseline = state_now.baseline.get_or_insert_with(|| {
            let written = guarded.scope.skipped.iter().map(|path| (path.clone(), None));
            let before = found.iter().map(|(path, entry)| (path.clone(), entry.link));
            scripts_run(&guarded.scope.root, before.chain(written).collect(), link_id);
            found.clone()
        });
        found.retain(|path, entry| baseline.get(path) == Some(entry));
        if !state_now.files.contains_key(state_dir) {
            let file = BaselineFile::write(state_dir, &guarded.scope, baseline)
                .map_err(|source| ExecError::Log { path: state_dir.to_owned(), source })?;
            state_now.files.insert(state_dir.to_owned(), file);
        }
        state_now.scripts += 1;
        drop(state);
        let links = found.iter().filter(|(_, entry)| entry.link.is_some());
        let links = links.filter_map(|(path, _)| Some((path.clone(), fs::read_link(path).ok()?)));
        Ok(Self { guarded, links: links.collect(), found, is_done: false })
    }

    /// Checks the directory when the script has ended.
    pub(crate) fn finish(mut self) -> Check {
        self.is_done = true;
        let mut state = self.guarded.state();
        state.scripts -= 1;
        let mut check = self.guarded.check(&mut state);
        restore(&self.guarded.scope.root, &self.links, &mut check);
        check
    }

    /// Checks the directory when the script has ended, and adds a line to its output for each file that was renamed.
    pub(crate) fn finish_to<S: OutputSink>(
        guard: Option<Self>,
        output: &mut OutputChannel<'_, S>,
    ) -> Result<(), ExecError> {
        let Some(guard) = guard else { return Ok(()) };
        let check = guard.finish();
        output.write(check.renamed.as_bytes())?;
        check.result().map(drop)
    }
}

impl Drop for ControlGuard {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.guarded.state();
        // The script counts as running: it may not have ended yet.
        let check = self.guarded.check(&mut state);
        state.unreported = check.renamed;
        state.scripts -= 1;
    }
}

/// Checks a directory again after a check that failed, or after a script that was dropped. Does nothing otherwise.
pub(crate) fn check_again(scope: Scope) -> Check {
    let guarded = Guarded::of(scope);
    let mut state = guarded.state();
    guarded.check(&mut state)
}

/// Renames control files that scripts of a killed process have created, and returns a line for each of them. The
/// scripts must have ended. `state_dir` is that of the sandbox. This blocks the thread.
///
/// # Errors
///
/// The working directory cannot be searched, or a file not be renamed. The next call tries it again.
pub fn rename_left_control_files(state_dir: &Path) -> Result<String, ExecError> {
    check_left(state_dir, |scope, files| check(scope, files).result())
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// A line for each file that was renamed.
    pub(crate) renamed: String,
    /// Why control files may be left.
    pub(crate) error: Option<ExecError>,
}

impl Check {
    /// What was renamed, if nothing is left.
    pub(crate) fn result(self) -> Result<String, ExecError> {
        self.error.map_or(Ok(self.renamed), Err)
    }
}

/// Renames the control files that are not in the baseline, and then those in renamed directories.
pub(crate) fn check(scope: &Scope, baseline: &ControlFiles) -> Check {
    let mut check = Check::default();
    loop {
        let before = check.renamed.len();
        rename_new(scope, baseline, &mut check);
        if check.renamed.len() == before || check.error.is_some() {
            return check;
        }
    }
}

fn rename_new(scope: &Scope, baseline: &ControlFiles, check: &mut Check) {
    let (now, walked) = scope.control_files();
    check.error = walked.err().map(unguarded);
    for (path, _) in now.iter().filter(|(path, entry)| baseline.get(*path) != Some(*entry)) {
        let name = path.strip_prefix(&scope.root).unwrap_or(path).to_string_lossy();
        match rename(&scope.root, path) {
            Ok(aside) => {
                let is_git = name == "HEAD" || ControlFile::of([&*name]) == Some(ControlFile::Git);
                let (who, allowed) = if is_git {
                    ("git", "; to allow it, set `write_git = true` in [run.sandbox]")
                } else {
                    ("later runs", "")
                };
                // Writing to a string does not fail.
                let _ = writeln!(
                    check.renamed,
                    "fabro: {who} would obey {name}, so it was renamed to {aside}{allowed}"
                );
            }
            Err(error) if is_gone(&error) => {}
            Err(source) => {
                check.error.get_or_insert(ExecError::Unguarded {
                    problem: format!("{} cannot be renamed: {source}", path.display()),
                    fix: "remove it",
                    source: Some(source),
                });
            }
        }
    }
}

/// Makes the links again that a script has removed.
fn restore(root: &Path, links: &[(PathBuf, PathBuf)], check: &mut Check) {
    let is_missing = |path: &Path| {
        fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    for (path, target) in links.iter().filter(|(path, _)| is_missing(path)) {
        let inside = path.strip_prefix(root).unwrap_or(path);
        let name = inside.to_string_lossy();
        let made = beneath::directory(root, inside.parent().unwrap_or(Path::new("")))
            .and_then(|dir| symlinkat(target, dir, inside.file_name().unwrap_or_default()));
        match made {
            // Writing to a string does not fail.
            Ok(()) => drop(writeln!(check.renamed, "fabro: {name} was removed, and restored")),
            Err(error) => {
                check.error.get_or_insert(ExecError::Unguarded {
                    problem: format!("{name} was removed, and cannot be restored: {error}"),
                    fix: "restore it",
                    source: Some(error.into()),
                });
            }
        }
    }
}

fn unguarded(error: WalkError) -> ExecError {
    let (problem, fix) = (error.to_string(), error.fix());
    let source = match error {
        WalkError::Unlisted { source, .. } => Some(source),
        WalkError::TooMany(_) => None,
    };
    ExecError::Unguarded { problem, fix, source }
}

/// Gives a file an unused name that nothing obeys, and returns the name.
fn rename(root: &Path, path: &Path) -> io::Result<String> {
    let parent = path.parent().unwrap_or(root);
    match rename_in(root, parent, path) {
        Err(Errno::ACCESS) => {
            make_accessible(root, parent)?;
            Ok(rename_in(root, parent, path)?)
        }
        renamed => Ok(renamed?),
    }
}

fn rename_in(root: &Path, parent: &Path, path: &Path) -> rustix::io::Result<String> {
    let dir = beneath::directory(root, parent.strip_prefix(root).unwrap_or(parent))?;
    let from = path.file_name().unwrap_or_default();
    let name = from.to_string_lossy();
    for number in 0_u32.. {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let aside = format!("{name}.from-sandbox{number}");
        let renamed = match renameat_with(&dir, from, &dir, &*aside, RenameFlags::NOREPLACE) {
            // Not every file system has the flag.
            Err(Errno::INVAL) => match statat(&dir, &*aside, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => renameat(&dir, from, &dir, &*aside),
            },
            renamed => renamed,
        };
        match renamed {
            Err(Errno::EXIST) => {}
            renamed => return renamed.map(|()| aside),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use fabro_types::running_scripts::may_be_of_script;

    use super::*;
    use crate::control::protected_paths;

    struct Ground {
        dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Ground {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap().join("work");
            fs::create_dir(&root).unwrap();
            Self { dir, root }
        }

        fn write(&self, name: &str) {
            let path = self.root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }

        fn guard(&self) -> ControlGuard {
            let skipped = BTreeSet::from([self.root.join("own")]);
            let scope = Scope { root: self.root.clone(), skipped };
            ControlGuard::begin(scope, &self.dir.path().join("state")).unwrap()
        }

        fn has(&self, name: &str) -> bool {
            self.root.join(name).exists()
        }
    }

    fn renamed(check: Check) -> String {
        assert!(check.error.is_none(), "{:?}", check.error);
        check.renamed
    }

    #[test]
    fn new_control_files_are_renamed_at_any_depth() {
        let ground = Ground::new();
        let root = &ground.root;
        for name in ["AGENTS.md", "sub/.fabro/config.toml", "docs/notes.md", "own/AGENTS.md"] {
            ground.write(name);
        }
        symlink("docs/notes.md", root.join("CLAUDE.md")).unwrap();
        let guard = ground.guard();
        let expected = ["AGENTS.md", "docs/notes.md", "sub/.fabro"].map(|name| root.join(name));
        assert_eq!(protected_paths(root, &guard.found), BTreeSet::from(expected));
        for name in ["fabro.toml", "a/b/.fabro/config.toml", "AGENTS.md", "own/fabro.toml", "x.md"]
        {
            ground.write(name);
        }
        fs::remove_file(root.join("CLAUDE.md")).unwrap();
        symlink("x.md", root.join("CLAUDE.md")).unwrap();
        insta::assert_snapshot!(renamed(guard.finish()), @r"
        fabro: later runs would obey CLAUDE.md, so it was renamed to CLAUDE.md.from-sandbox
        fabro: later runs would obey a/b/.fabro, so it was renamed to .fabro.from-sandbox
        fabro: later runs would obey fabro.toml, so it was renamed to fabro.toml.from-sandbox
        fabro: CLAUDE.md was removed, and restored
        ");
        assert!(ground.has("a/b/.fabro.from-sandbox/config.toml"));
        let guard = ground.guard();
        ground.write("fabro.toml");
        insta::assert_snapshot!(renamed(guard.finish()), @"fabro: later runs would obey fabro.toml, so it was renamed to fabro.toml.from-sandbox-1");
    }

    #[test]
    fn a_new_repository_in_the_working_directory_is_renamed() {
        let ground = Ground::new();
        let guard = ground.guard();
        ground.write(".git/config");
        ground.write("sub/.git/config");
        insta::assert_snapshot!(renamed(guard.finish()), @"fabro: git would obey .git, so it was renamed to .git.from-sandbox; to allow it, set `write_git = true` in [run.sandbox]");
        let guard = ground.guard();
        assert_eq!(protected_paths(&ground.root, &guard.found), BTreeSet::new());
        ground.write(".git");
        assert!(renamed(guard.finish()).contains("renamed to .git.from-sandbox-1;"));
        for name in ["HEAD", "objects/x", "refs/x", "config"] {
            ground.write(name);
        }
        let guard = ground.guard();
        assert_eq!(renamed(guard.finish()), "", "it was there before");
        std::fs::remove_file(ground.root.join("HEAD")).unwrap();
        let guard = ground.guard();
        ground.write("HEAD");
        insta::assert_snapshot!(renamed(guard.finish()), @"fabro: git would obey HEAD, so it was renamed to HEAD.from-sandbox; to allow it, set `write_git = true` in [run.sandbox]");
        ground.write(".git/config");
        let guard = ground.guard();
        let git = BTreeSet::from([ground.root.join(".git")]);
        assert_eq!(protected_paths(&ground.root, &guard.found), git);
        assert_eq!(renamed(guard.finish()), "", "it was there before");
    }

    #[test]
    fn new_control_files_are_not_read_while_the_script_runs() {
        let ground = Ground::new();
        let of_script = |name: &str| may_be_of_script(&ground.root.join(name));
        ground.write("AGENTS.md");
        let guard = ground.guard();
        ground.write("fabro.toml");
        assert!(of_script("fabro.toml") && !of_script("AGENTS.md") && !of_script("own/AGENTS.md"));
        let second = ground.guard();
        guard.finish();
        assert!(of_script("fabro.toml"));
        second.finish();
        assert!(!of_script("fabro.toml"));
    }

    #[test]
    fn control_files_in_a_renamed_directory_are_renamed_too() {
        let ground = Ground::new();
        let guard = ground.guard();
        ground.write("demo.fabro/sub/fabro.toml");
        insta::assert_snapshot!(renamed(guard.finish()), @r"
        fabro: later runs would obey demo.fabro, so it was renamed to demo.fabro.from-sandbox
        fabro: later runs would obey demo.fabro.from-sandbox/sub/fabro.toml, so it was renamed to fabro.toml.from-sandbox
        ");
    }

    #[test]
    fn removed_links_are_restored() {
        let ground = Ground::new();
        ground.write("docs/guide.md");
        ground.write("sub/x");
        let link = |name: &str| ground.root.join(name);
        symlink("docs/guide.md", link("AGENTS.md")).unwrap();
        symlink("../docs", link("sub/.fabro")).unwrap();
        let guard = ground.guard();
        fs::remove_file(link("AGENTS.md")).unwrap();
        fs::remove_dir_all(link("sub")).unwrap();
        let check = guard.finish();
        assert_eq!(check.renamed, "fabro: AGENTS.md was removed, and restored\n");
        assert_eq!(fs::read_link(link("AGENTS.md")).unwrap(), Path::new("docs/guide.md"));
        let error = check.error.unwrap().to_string();
        assert!(error.contains("sub/.fabro was removed, and cannot be restored"), "{error}");
    }

    #[test]
    fn scripts_at_the_same_time_have_one_baseline() {
        let ground = Ground::new();
        let first = ground.guard();
        ground.write("fabro.toml");
        let second = ground.guard();
        assert!(ground.dir.path().join("state").read_dir().unwrap().next().is_some());
        assert!(renamed(first.finish()).contains("fabro.toml"));
        ground.write("fabro.toml");
        assert!(renamed(second.finish()).contains("fabro.toml.from-sandbox-1"));
        assert!(ground.dir.path().join("state").read_dir().unwrap().next().is_none());
        ground.write("fabro.toml");
        assert_eq!(renamed(ground.guard().finish()), "", "written while no script ran");
    }

    #[test]
    fn a_dropped_script_keeps_the_baseline() {
        let ground = Ground::new();
        let scope = ground.guard().guarded.scope.clone();
        let guard = ground.guard();
        ground.write("AGENTS.md");
        drop(guard);
        // By a process that has not quite ended.
        ground.write("fabro.toml");
        let lines = renamed(check_again(scope.clone()));
        assert!(lines.contains("AGENTS.md") && lines.contains("fabro.toml"), "{lines}");
        ground.write("fabro.toml");
        assert_eq!(renamed(check_again(scope)), "", "written while no script ran");
    }

    /// Of a user who is not root; root is not held up by modes.
    #[test]
    fn directories_without_permissions_are_searched() {
        let ground = Ground::new();
        let guard = ground.guard();
        ground.write("closed/below/fabro.toml");
        ground.write("fabro.toml");
        let mode = |name: &str, mode| {
            fs::set_permissions(ground.root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("closed/below", 0o555);
        mode("closed", 0o311);
        mode("", 0o111);
        let lines = renamed(guard.finish());
        mode("", 0o755);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(!ground.has("closed/below/fabro.toml") && !ground.has("fabro.toml"));
    }

    #[test]
    fn a_file_that_cannot_be_renamed_is_an_error_until_it_can() {
        let ground = Ground::new();
        let guard = ground.guard();
        let scope = guard.guarded.scope.clone();
        // Its new name is too long.
        let name = format!("{}.fabro", "x".repeat(248));
        ground.write(&name);
        let error = guard.finish().error.unwrap().to_string();
        assert!(error.contains("cannot be renamed: File name too long"), "{error}");
        assert!(error.ends_with("so files that later runs obey may be left there: remove it"));
        assert!(check_again(scope.clone()).error.is_some());
        fs::remove_file(ground.root.join(name)).unwrap();
        assert_eq!(renamed(check_again(scope)), "");
    }

    #[test]
    fn new_control_files_of_a_killed_process_are_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        let state = dir.path().join("state");
        assert_eq!(rename_left_control_files(&state).unwrap(), "");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("AGENTS.md"), "of the user").unwrap();
        let scope = Scope { root: root.clone(), skipped: BTreeSet::new() };
        let files = scope.control_files().0;
        std::mem::forget(BaselineFile::write(&state, &scope, &files).unwrap());
        fs::write(root.join("fabro.toml"), "of a script").unwrap();
        let renamed = rename_left_control_files(&state).unwrap();
        assert!(renamed.contains("renamed to fabro.toml.from-sandbox\n"), "{renamed}");
        assert!(root.join("AGENTS.md").exists() && !root.join("fabro.toml").exists());
        fs::write(root.join("fabro.toml"), "of the user").unwrap();
        assert_eq!(rename_left_control_files(&state).unwrap(), "", "only once");
    }
}
