use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

use fabro_types::running_scripts::{FilesBefore, scripts_ended, scripts_run};
use rustix::process::geteuid;

use super::*;
use crate::owner::belongs_to_user;

#[test]
fn files_that_others_can_write_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fabro.toml");
    fs::write(&file, "").unwrap();
    let check = |mode: u32, expect: bool| {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(check_owner(&file, dir.path()).is_ok(), expect, "{mode:o}");
    };
    check(0o644, true);
    check(0o664, fs::metadata(&file).unwrap().gid() == geteuid().as_raw());
    check(0o646, false);
    check(0o666, false);
    check(0o644, true);
    // A user who may write to a directory can replace its files, unless it is sticky.
    for (mode, expect) in [(0o777, false), (0o1777, true), (0o755, true)] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(check_owner(&file, dir.path()).is_ok(), expect, "{mode:o}");
    }
    // The directory that a link leads to counts.
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(open.join("AGENTS.md"), "").unwrap();
    let link = dir.path().join("CLAUDE.md");
    symlink(open.join("AGENTS.md"), &link).unwrap();
    assert!(matches!(check_owner(&link, dir.path()), Err(ConfigError::Writable(_))));
    if geteuid().is_root() {
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&open, Some(12345), None).unwrap();
        assert!(matches!(check_owner(&link, dir.path()), Err(ConfigError::Owner { .. })));
    }
}

#[test]
fn files_and_links_of_other_users_are_refused() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can make files of other users");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // A link in the middle of the path of a named file decides which file it is.
    let [workflow, own, lib] = ["w.fabro", "own", "lib"].map(|name| dir.path().join(name));
    fs::write(&workflow, "").unwrap();
    fs::create_dir(&own).unwrap();
    fs::write(own.join("x.sh"), "").unwrap();
    symlink(&own, &lib).unwrap();
    check_named_file(&lib.join("x.sh"), &workflow).unwrap();
    lchown(&lib, Some(12345), None).unwrap();
    let refused = check_named_file(&lib.join("x.sh"), &workflow);
    assert!(matches!(refused, Err(ConfigError::Owner { owner: 12345, .. })));
    symlink(&lib, dir.path().join("way")).unwrap();
    assert!(check_named_file(&dir.path().join("way/x.sh"), &workflow).is_err());
    let check = |path: &Path| check_owner(path, dir.path());
    let file = dir.path().join("fabro.toml");
    let link = dir.path().join("run.toml");
    fs::write(&file, "").unwrap();
    symlink(&file, &link).unwrap();
    check(&link).unwrap();
    lchown(&link, Some(12345), None).unwrap();
    assert!(matches!(check(&link), Err(ConfigError::Owner { owner: 12345, .. })));
    check(&file).unwrap();
    chown(&file, None, Some(12345)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    assert!(matches!(check(&file), Err(ConfigError::Writable(_))));
    chown(&file, Some(12345), None).unwrap();
    assert!(matches!(check(&file), Err(ConfigError::Owner { owner: 12345, .. })));
    assert!(!belongs_to_user(&file));
}

/// A file that a workflow references, by owner and mode of both.
#[test]
fn named_files_are_as_protected_as_the_workflow() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can make files of other users");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [workflow, file] = ["w.fabro", "s.sh"].map(|name| dir.path().join(name));
    let set = |path: &Path, (owner, mode): (u32, u32)| {
        fs::write(path, "").unwrap();
        chown(path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let check = |by: (u32, u32), named: (u32, u32), expect: bool| {
        set(&workflow, by);
        set(&file, named);
        assert_eq!(check_named_file(&file, &workflow).is_ok(), expect, "{by:?} {named:?}");
    };
    check((0, 0o644), (0, 0o644), true);
    check((0, 0o644), (12345, 0o644), false);
    check((12345, 0o644), (12345, 0o644), true);
    check((12345, 0o644), (12346, 0o644), false);
    check((0, 0o644), (0, 0o666), false);
    check((0, 0o666), (0, 0o666), true);
}

/// Makes links (`LINK -> TARGET`) and files, and checks the path.
#[track_caller]
fn check_links(path: &str, tree: &[&str], expect: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    for entry in tree {
        let (name, target) =
            entry.split_once(" -> ").map_or((*entry, None), |it| (it.0, Some(it.1)));
        let name = root.join(name.replace("DIR", dir.path().to_str().unwrap()));
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        match target {
            Some(target) => symlink(target.replace("ROOT", root.to_str().unwrap()), name).unwrap(),
            None => fs::write(name, "").unwrap(),
        }
    }
    let full = root.join(path.replace("DIR", dir.path().to_str().unwrap()));
    let found = match check_owner(&full, &root) {
        Ok(()) => None,
        Err(ConfigError::Link { target, .. }) => {
            let target = target.strip_prefix(root.canonicalize().unwrap()).unwrap();
            Some(target.display().to_string())
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found.as_deref(), expect, "{path} {tree:?}");
}

#[test]
fn links_to_files_that_agents_may_write_are_refused() {
    for (path, tree, expect) in [
        (
            ".fabro/config.toml",
            &[".fabro/config.toml -> ../conf/s.toml", "conf/s.toml"][..],
            "conf/s.toml",
        ),
        ("AGENTS.md", &["AGENTS.md -> ROOT/docs/guide.md", "docs/guide.md"], "docs/guide.md"),
        (".fabro/config.toml", &[".fabro -> conf", "conf/config.toml"], "conf/config.toml"),
        (
            ".claude/skills/pdf",
            &[".claude/skills -> ../skills", "skills/pdf/SKILL.md"],
            "skills/pdf",
        ),
        // It becomes a workflow when an agent adds a start node.
        ("w.fabro", &["w.fabro -> wf/w.dot", "wf/w.dot"], "wf/w.dot"),
        ("w.dot", &["w.dot -> notes.txt"], "notes.txt"),
        // The link in the middle can be replaced.
        ("AGENTS.md", &["AGENTS.md -> docs/a", "docs/a -> ../CLAUDE.md", "CLAUDE.md"], "docs/a"),
        (
            "AGENTS.md",
            &["AGENTS.md -> docs/CLAUDE.md", "docs -> .claude", ".claude/CLAUDE.md"],
            "docs",
        ),
        // A sandbox may write the `.git` of a subdirectory.
        ("AGENTS.md", &["AGENTS.md -> sub/.git/x", "sub/.git/x"], "sub/.git/x"),
        (
            "DIR/user.toml",
            &["DIR/user.toml -> ROOT/dotfiles/config.toml", "dotfiles/config.toml"],
            "dotfiles/config.toml",
        ),
    ] {
        check_links(path, tree, Some(expect));
    }
}

#[test]
fn links_to_protected_files_and_out_of_the_project_are_allowed() {
    for (path, tree) in [
        ("AGENTS.md", &["AGENTS.md"][..]),
        ("CLAUDE.md", &["CLAUDE.md -> AGENTS.md", "AGENTS.md"]),
        (
            ".claude/skills/pdf",
            &[".claude/skills -> ../.fabro/skills", ".fabro/skills/pdf/SKILL.md"],
        ),
        (".fabro/config.toml", &[".fabro/config.toml -> ../../shared.toml", "../shared.toml"]),
        ("sub/AGENTS.md", &["sub -> real", "real/AGENTS.md"]),
        ("flow.txt", &["flow.txt -> docs/flow.txt", "docs/flow.txt"]),
        (".fabro/../flow.txt", &["flow.txt -> docs/flow.txt", "docs/flow.txt"]),
        ("AGENTS.md", &["AGENTS.md -> AGENTS.md"]),
        ("missing/AGENTS.md", &["AGENTS.md"]),
    ] {
        check_links(path, tree, None);
    }
}

/// Agents may write to the outer project too.
#[test]
fn links_of_an_inner_project_into_the_outer_one_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [outer, inner] = ["outer", "outer/inner"].map(|name| dir.path().join(name));
    for path in [outer.join(".git"), outer.join("conf"), inner.clone()] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(outer.join("conf/config.toml"), "").unwrap();
    symlink("../conf", inner.join(".fabro")).unwrap();
    let error = check_owner(&inner.join(".fabro/config.toml"), &inner).unwrap_err();
    assert!(matches!(error, ConfigError::Link { .. }), "{error}");
}

#[test]
fn named_files_with_a_protected_name_may_not_link_to_unprotected_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in [".git", ".fabro", "wf/w", "docs"] {
        fs::create_dir_all(path(folder)).unwrap();
    }
    for file in ["wf/w/s.sh", "docs/s.sh"] {
        fs::write(path(file), "").unwrap();
    }
    for (target, link) in
        [("../wf", ".fabro/workflows"), ("../docs/s.sh", ".fabro/s.sh"), ("docs/s.sh", "s.sh")]
    {
        symlink(target, path(link)).unwrap();
    }
    let check = |workflow: &str, named: &str, expect: bool| {
        let workflow = path(workflow);
        fs::write(&workflow, "").unwrap();
        let named = workflow.with_file_name(named);
        assert_eq!(check_named_file(&named, &workflow).is_ok(), expect, "{}", named.display());
    };
    check(".fabro/workflows/w/workflow.fabro", "s.sh", false);
    check("y.fabro", ".fabro/s.sh", false);
    check("y.fabro", "s.sh", true);
    check(".fabro/workflows/w/workflow.fabro", "../../docs/s.sh", true);
}

#[test]
fn files_of_running_scripts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fabro.toml");
    fs::write(&file, "").unwrap();
    let check = || check_owner(&file, dir.path());
    scripts_run(dir.path(), FilesBefore::new(), |_| None);
    assert!(matches!(check(), Err(ConfigError::OfScript(_))));
    scripts_ended(dir.path());
    check().unwrap();
}

#[test]
fn links_of_other_users_in_a_path_are_refused() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can make links of other users");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [real, link] = ["real/.fabro", "sub/.fabro"].map(|name| dir.path().join(name));
    fs::create_dir_all(&real).unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(real.join("config.toml"), "").unwrap();
    symlink("../real/.fabro", &link).unwrap();
    let check = || check_owner(&link.join("config.toml"), dir.path());
    check().unwrap();
    lchown(&link, Some(12345), None).unwrap();
    assert!(matches!(check(), Err(ConfigError::Owner { owner: 12345, .. })));
}

/// A link in the user's configuration may lead to a file that is not in the project of the run.
#[test]
fn user_configuration_links_are_checked_against_the_project_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in [".fabro/state", "dotfiles", ".config/fabro", "project/.git"] {
        fs::create_dir_all(path(folder)).unwrap();
    }
    fs::write(path("dotfiles/settings"), "").unwrap();
    symlink(path("dotfiles/settings"), path(".config/fabro/config.toml")).unwrap();
    check_owner(&path(".config/fabro/config.toml"), &path("project")).unwrap();
    assert!(check_owner(&path(".config/fabro/config.toml"), dir.path()).is_err());
}
