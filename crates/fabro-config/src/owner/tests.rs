use std::os::unix::fs::{chown, lchown, symlink};

use super::*;

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
    let runs = store.join("runs");
    symlink("/", &runs).unwrap();
    check_found_store(&store).unwrap();
    lchown(&runs, Some(12345), None).unwrap();
    assert!(matches!(check_found_store(&store), Err(ConfigError::Store { owner: 12345, .. })));
    fs::remove_file(&runs).unwrap();
    // Their link may lead to a directory of root.
    fs::remove_dir(&store).unwrap();
    symlink("/", &store).unwrap();
    lchown(&store, Some(12345), None).unwrap();
    assert!(matches!(check_found_store(&store), Err(ConfigError::Store { owner: 12345, .. })));
}
