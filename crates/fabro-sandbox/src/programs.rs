//! Programs in the directories of `PATH`.

use std::path::PathBuf;

use rustix::fs::{Access, access};

/// The program with this name that a shell would start; `None` where there is none. Relative directories of
/// `PATH` do not count: which program they mean depends on the working directory.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    in_directories(name, directories())
}

/// The directories of `PATH`.
pub(crate) fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

/// The first program with this name in these directories.
pub(crate) fn in_directories(
    name: &str,
    directories: impl IntoIterator<Item = PathBuf>,
) -> Option<PathBuf> {
    let mut places = directories.into_iter().map(|directory| directory.join(name));
    places.find(|place| {
        place.is_absolute() && place.is_file() && access(place, Access::EXEC_OK).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_program_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        fs::create_dir_all(place("a/tool")).unwrap();
        for (folder, mode) in [("b", 0o644), ("c", 0o755), ("d", 0o755)] {
            fs::create_dir(place(folder)).unwrap();
            fs::write(place(folder).join("tool"), "").unwrap();
            fs::set_permissions(place(folder).join("tool"), fs::Permissions::from_mode(mode))
                .unwrap();
        }
        let find = |folders: &[&str]| in_directories("tool", folders.iter().map(|it| place(it)));
        assert_eq!(find(&["none", "a", "b", "c", "d"]), Some(place("c/tool")));
        assert_eq!(find(&["a", "b"]), None);
        assert_eq!(in_directories("tool", [PathBuf::from("c")]), None);
    }
}
