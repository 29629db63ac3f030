use std::path::{Path, PathBuf};

use fabro_types::control_files::FABRO_DIR;

use crate::error::ConfigError;
use crate::owner::{belongs_to_user, check_found_store};

/// The store of a project, in [`FABRO_DIR`].
pub(crate) const STORE_DIR: &str = "state";

/// Where runs are recorded: `flag` (`--store`), else `env` (the value of `FABRO_STORE`, ignored when
/// empty), else `.fabro/state` in the [`project_root`]. Nothing is created.
///
/// Relative paths are relative to `cwd`.
///
/// # Errors
///
/// A store that neither `flag` nor `env` names belongs to another user, or its `.fabro` does. Root may use the store of
/// a user in a directory of that user.
pub fn store_dir(
    cwd: &Path,
    flag: Option<&Path>,
    env: Option<&str>,
) -> Result<PathBuf, ConfigError> {
    let env = env.filter(|text| !text.is_empty()).map(Path::new);
    if let Some(chosen) = flag.or(env) {
        return Ok(cwd.join(chosen));
    }
    let found = project_root(cwd).join(FABRO_DIR).join(STORE_DIR);
    check_found_store(&found)?;
    Ok(found)
}

/// The [`project_dir`] of `cwd`; `cwd` if it is in no project.
pub fn project_root(cwd: &Path) -> &Path {
    project_dir(cwd).unwrap_or(cwd)
}

/// The root of the project that `cwd` is in: the nearest of `cwd` and its ancestors with a `.fabro` that is not empty, or
/// a `.git` (a file in a linked worktree). Those of another user are ignored: anyone can create one in `/tmp`. The
/// search for settings, workflows, skills, instructions and the store ends here.
pub fn project_dir(cwd: &Path) -> Option<&Path> {
    cwd.ancestors().find(|dir| is_project(dir))
}

/// The outermost project that contains `root`, a [`project_root`]. Agents may write anywhere in it.
pub(crate) fn outermost_root(root: &Path) -> &Path {
    root.ancestors().filter(|dir| is_project(dir)).last().unwrap_or(root)
}

fn is_project(dir: &Path) -> bool {
    let own = dir.join(FABRO_DIR);
    let git = dir.join(".git");
    (is_used(&own) && belongs_to_user(&own)) || (git.exists() && belongs_to_user(&git))
}

/// The folders from `cwd` up to the root of its project; only `cwd` if it is in no project.
pub fn project_dirs(cwd: &Path) -> impl Iterator<Item = &Path> {
    let root = project_root(cwd);
    cwd.ancestors().take_while(move |dir| dir.starts_with(root))
}

/// Whether something is in a directory. Containers leave an empty `.fabro` in the working directory of a run.
fn is_used(dir: &Path) -> bool {
    // One that cannot be read is not passed over: the error is reported when it is used.
    dir.read_dir().map_or_else(|_| dir.is_dir(), |mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable_and_the_variable_over_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("a/b");
        fs::create_dir_all(&cwd).unwrap();
        fs::write(dir.path().join(".git"), "gitdir: elsewhere").unwrap();
        let check = |flag: Option<&str>, env: Option<&str>, expect: PathBuf| {
            assert_eq!(store_dir(&cwd, flag.map(Path::new), env).unwrap(), expect);
        };
        check(Some("flag"), Some("env"), cwd.join("flag"));
        check(Some("/flag"), None, "/flag".into());
        check(None, Some("env"), cwd.join("env"));
        check(None, Some(""), dir.path().join(".fabro/state"));
        fs::create_dir(dir.path().join("a/.fabro")).unwrap();
        check(None, None, dir.path().join(".fabro/state"));
        fs::write(dir.path().join("a/.fabro/config.toml"), "").unwrap();
        check(None, None, dir.path().join("a/.fabro/state"));
    }

    #[test]
    fn a_file_named_like_the_project_folder_is_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".fabro"), "").unwrap();
        assert_ne!(project_dir(dir.path()), Some(dir.path()));
    }
}
