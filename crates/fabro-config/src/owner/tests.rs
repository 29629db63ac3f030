use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

use super::*;

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
}

#[test]
fn files_and_links_of_other_users_are_refused() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can make files of other users");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
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

#[test]
fn a_private_group_has_no_other_members() {
    let check = |groups: &str, users: &str, expect: bool| {
        assert_eq!(has_other_members(1000, groups, users), expect, "{groups} {users}");
    };
    let ann = "ann:x:1000:1000::/:/bin/sh\n";
    check("ann:x:1000:\nusers:x:100:bob\n", ann, false);
    check("ann:x:1000:ann\n", ann, false);
    check("dev:x:1000:ann,bob\n", ann, true);
    check("dev:x:1000:\n", &format!("{ann}bob:x:1001:1000::/:/bin/sh\n"), true);
    check("", "", false);
    check("broken\n\n", "broken\n", false);
}

/// A file that a workflow names, by owner and mode of both.
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

#[test]
fn a_store_of_another_user_is_refused() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can make files of other users");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join(".fabro/state");
    check_found_store(&store).unwrap();
    fs::create_dir_all(&store).unwrap();
    check_found_store(&store).unwrap();
    chown(&store, Some(12345), None).unwrap();
    assert!(matches!(check_found_store(&store), Err(ConfigError::Store { owner: 12345, .. })));
    chown(dir.path().join(".fabro"), Some(12345), None).unwrap();
    assert!(matches!(check_found_store(&store), Err(ConfigError::Store { owner: 12345, .. })));
    // The user's own directory, which root works in.
    chown(dir.path(), Some(12345), None).unwrap();
    check_found_store(&store).unwrap();
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
        ("AGENTS.md", &["AGENTS.md -> AGENTS.md"]),
        ("missing/AGENTS.md", &["AGENTS.md"]),
    ] {
        check_links(path, tree, None);
    }
}
