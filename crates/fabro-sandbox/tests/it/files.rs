use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

use fabro_sandbox::{
    FileError, FileKind, Files, KnownFiles, LocalFiles, MemoryFiles, ReadFirst, WithValues,
};

/// A working directory `work`, and a directory `out` beside it with a secret.
struct Place {
    directory: tempfile::TempDir,
    files: LocalFiles,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("work/sub")).unwrap();
        std::fs::create_dir(directory.path().join("out")).unwrap();
        std::fs::write(directory.path().join("out/secret"), "secret").unwrap();
        std::fs::write(directory.path().join("work/sub/a.txt"), "inside").unwrap();
        let files = LocalFiles::new(directory.path().join("work")).unwrap();
        Self { directory, files }
    }

    fn work(&self, path: &str) -> PathBuf {
        self.directory.path().join("work").join(path)
    }

    fn out(&self, path: &str) -> PathBuf {
        self.directory.path().join("out").join(path)
    }

    /// The files for a reader who has read these.
    fn read_first(&self, known: &KnownFiles) -> ReadFirst {
        ReadFirst::new(Arc::new(self.files.clone()), known.clone())
    }

    fn absolute(&self, path: &str) -> String {
        self.work(path).to_str().unwrap().to_owned()
    }
}

/// Reads a file, so that it may be changed.
fn read(files: &ReadFirst, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    files.open(path).unwrap().read_to_end(&mut content).unwrap();
    content
}

/// No operation leads out by this path.
#[track_caller]
fn check_outside(place: &Place, path: &str) {
    let outside = |result: Result<(), FileError>| {
        assert!(matches!(result, Err(FileError::Outside(_))), "{path}: {result:?}");
    };
    outside(place.files.open(path).map(drop));
    outside(place.files.info(path).map(drop));
    outside(place.files.list(path).map(drop));
    outside(place.files.write(path, b"changed"));
    assert_eq!(std::fs::read_to_string(place.out("secret")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(place.out("")).unwrap().count(), 1, "{path}");
}

#[test]
fn nothing_leads_out() {
    let place = Place::new();
    symlink("../out/secret", place.work("file")).unwrap();
    symlink(place.out("secret"), place.work("absolute")).unwrap();
    symlink("../out", place.work("dir")).unwrap();
    symlink("../out/new", place.work("dangling")).unwrap();
    symlink("dir/secret", place.work("twice")).unwrap();
    symlink("/proc/self/root/etc/passwd", place.work("proc")).unwrap();
    let secret = place.out("secret").to_str().unwrap().to_owned();
    for path in [
        "../out/secret",
        "sub/../../out/secret",
        "sub/../../out/new/er",
        "file",
        "absolute",
        "dir/secret",
        "dir/new",
        "dir/new/er",
        "dir",
        "dangling",
        "twice",
        "..",
        "/",
        "/etc/passwd",
        "proc",
        "/proc/self/environ",
        "/dev/tcp",
        "../work2/x",
        "missing/../../out/secret",
        &secret,
    ] {
        check_outside(&place, path);
    }
    for path in ["../out/secret", "dir/secret", "/etc/passwd"] {
        assert!(matches!(place.files.remove(path), Err(FileError::Outside(_))), "{path}");
    }
    // A link itself can go; what it leads to stays.
    place.files.remove("file").unwrap();
    place.files.remove("dangling").unwrap();
    assert!(!place.work("file").is_symlink());
    assert!(place.out("secret").exists());
}

#[test]
fn every_way_inside_leads_there() {
    let place = Place::new();
    symlink("sub", place.work("link")).unwrap();
    symlink(place.work("sub/a.txt"), place.work("absolute")).unwrap();
    symlink("sub/made", place.work("dangling")).unwrap();
    let absolute = place.absolute("sub/a.txt");
    for path in [
        "sub/a.txt",
        "./sub//a.txt",
        "sub/../sub/a.txt",
        "link/a.txt",
        "link/../sub/a.txt",
        "absolute",
        "../work/sub/a.txt",
        "missing/../sub/a.txt",
        &absolute,
    ] {
        assert_eq!(place.files.read(path, 100).unwrap(), b"inside", "{path}");
        assert_eq!(place.files.info(path).unwrap().path, "sub/a.txt", "{path}");
    }
    for path in ["link/x/y.txt", "dangling", "new"] {
        place.files.write(path, b"new").unwrap();
        assert_eq!(place.files.read(path, 3).unwrap(), b"new", "{path}");
    }
    assert!(place.work("sub/x/y.txt").is_file() && place.work("sub/made").is_file());
    assert!(place.work("dangling").is_symlink());
    for root in [".", "sub/..", "link/.."] {
        assert_eq!(place.files.info(root).unwrap().path, ".");
        assert_eq!(place.files.list(root).unwrap().len(), 5, "{root}");
    }
}

#[test]
fn names_are_found_in_any_normalization() {
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    for (on_disk, asked) in [(composed, decomposed), (decomposed, composed)] {
        let place = Place::new();
        let path = |name: &str| format!("{name}/{name}.md");
        std::fs::create_dir(place.work(on_disk)).unwrap();
        std::fs::write(place.work(&path(on_disk)), "old").unwrap();
        let files = &place.files;
        let link = |target: &str, name: String| symlink(target, place.work(&name)).unwrap();
        link(on_disk, format!("{on_disk}-dir"));
        for path in
            [&path(asked), &place.absolute(&path(asked)), &format!("{asked}-dir/{asked}.md")]
        {
            assert_eq!(files.read(path, 10).unwrap(), b"old", "{path}");
        }
        assert_eq!(files.info(&path(asked)).unwrap().path, path(on_disk));
        assert_eq!(files.list(asked).unwrap().len(), 1);
        files.write(&path(asked), b"new").unwrap();
        files.write(&format!("{asked}/b.md"), b"b").unwrap();
        let names = |entries: Vec<fabro_sandbox::Entry>| -> Vec<String> {
            entries.into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(files.list(".").unwrap()).len(), 3);
        assert_eq!(names(files.list(on_disk).unwrap()), ["b.md", &format!("{on_disk}.md")]);
        // A new file beside files in both spellings gets the exact name.
        std::fs::create_dir(place.work(asked)).unwrap();
        assert_eq!(files.list(asked).unwrap().len(), 0);
        files.remove(&format!("{asked}-dir")).unwrap();
        assert!(!place.work(&format!("{on_disk}-dir")).exists());
    }
}

#[test]
fn protected_names_hold_in_any_normalization() {
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    for (on_disk, asked) in [(composed, decomposed), (decomposed, composed)] {
        let place = Place::new();
        std::fs::create_dir_all(place.work(&format!("{on_disk}/.git"))).unwrap();
        let workflow = "digraph { start -> exit }";
        std::fs::write(place.work(&format!("{on_disk}.dot")), workflow).unwrap();
        std::fs::write(place.work("plain.txt"), workflow).unwrap();
        symlink("plain.txt", place.work(&format!("{on_disk}-link.dot"))).unwrap();
        for path in ["/.git/config", "/AGENTS.md", ".dot", "-link.dot"] {
            let path = format!("{asked}{path}");
            let written = place.files.write(&path, b"x");
            assert!(matches!(written, Err(FileError::Protected(_))), "{path}: {written:?}");
            assert!(place.files.may_write(&path).is_err(), "{path}");
            let removed = place.files.remove(&path);
            assert!(matches!(removed, Err(FileError::Protected(_))), "{path}: {removed:?}");
        }
        let hidden = place.directory.path().join("work").canonicalize().unwrap().join(on_disk);
        let files = place.files.clone().hiding([hidden]);
        let listed = files.list(asked);
        assert!(matches!(listed, Err(FileError::Outside(_))), "{listed:?}");
    }
}

#[test]
fn a_working_directory_that_is_a_link() {
    let place = Place::new();
    symlink("work", place.directory.path().join("alias")).unwrap();
    let files = LocalFiles::new(place.directory.path().join("alias")).unwrap();
    let alias = place.directory.path().join("alias/sub/a.txt");
    assert_eq!(files.read(alias.to_str().unwrap(), 100).unwrap(), b"inside");
    assert_eq!(files.read(&place.absolute("sub/a.txt"), 100).unwrap(), b"inside");
}

/// Links that change all the time: each operation either stays inside or fails.
#[test]
#[cfg(target_os = "linux")]
fn a_directory_swapped_for_a_link() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let place = Place::new();
    std::fs::write(place.out("a.txt"), "secret").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    symlink(place.out(""), place.work("link")).unwrap();
    let swapping = std::thread::spawn({
        let stop = Arc::clone(&stop);
        let sub = place.work("sub");
        let link = place.work("link");
        move || {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &sub, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        }
    });
    for _ in 0..2_000 {
        if let Ok(content) = place.files.read("sub/a.txt", 100) {
            assert_eq!(content, b"inside");
        }
        if let Ok(entries) = place.files.list("sub") {
            assert!(entries.iter().all(|entry| entry.name != "secret"));
        }
        // Whether it fails depends on the moment.
        let _ = place.files.write("sub/b.txt", b"written");
        let _ = place.files.remove("sub/b.txt");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    let mut left: Vec<_> =
        std::fs::read_dir(place.out("")).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a.txt", "secret"]);
    assert_eq!(std::fs::read(place.out("a.txt")).unwrap(), b"secret");
}

#[test]
fn what_is_no_file_is_not_opened() {
    let place = Place::new();
    // Opened for reading, it would wait for a writer for ever.
    assert!(Command::new("mkfifo").arg(place.work("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.work("socket")).unwrap();
    for path in ["pipe", "socket"] {
        let check = |result: Result<(), FileError>| {
            assert!(matches!(result, Err(FileError::NotRegular(_))), "{path}: {result:?}");
        };
        check(place.files.open(path).map(drop));
        check(place.files.write(path, b"x"));
        check(place.files.remove(path));
        assert_eq!(place.files.info(path).unwrap().kind, FileKind::Other);
    }
    assert!(matches!(place.files.open("sub"), Err(FileError::IsDirectory(_))));
    assert!(matches!(place.files.open("."), Err(FileError::IsDirectory(_))));
    assert!(matches!(place.files.write("sub", b""), Err(FileError::IsDirectory(_))));
    assert!(matches!(place.files.remove("sub"), Err(FileError::IsDirectory(_))));
    assert!(matches!(place.files.list("sub/a.txt"), Err(FileError::NotDirectory(_))));
    assert!(matches!(place.files.open("sub/a.txt/x"), Err(FileError::NotDirectory(_))));
    assert!(matches!(place.files.write("sub/a.txt/x", b""), Err(FileError::NotDirectory(_))));
}

#[test]
#[cfg(target_os = "linux")]
fn the_file_systems_of_the_kernel_are_closed() {
    let files = LocalFiles::new("/").unwrap();
    for path in ["/proc/self/environ", "/proc/1/cmdline", "proc/version", "/sys/kernel/notes"] {
        let opened = files.open(path).map(drop);
        assert!(
            matches!(opened, Err(FileError::NotRegular(_) | FileError::NotFound(_))),
            "{path}: {opened:?}"
        );
    }
    for path in ["/dev/zero", "/dev/full", "/dev/tty"] {
        let opened = files.open(path).map(drop);
        assert!(matches!(opened, Err(FileError::NotRegular(_))), "{path}: {opened:?}");
    }
}

#[test]
fn hopeless_paths() {
    let place = Place::new();
    symlink("loop", place.work("loop")).unwrap();
    let long = "x".repeat(300);
    let deep = "d/".repeat(5_000);
    for path in ["", "a\0b", "\0", &long, &deep] {
        for result in [place.files.open(path).map(drop), place.files.write(path, b"")] {
            assert!(matches!(result, Err(FileError::Invalid(_))), "{result:?}");
        }
    }
    assert!(matches!(place.files.open("loop"), Err(FileError::Links(_))));
    assert!(matches!(place.files.open("none"), Err(FileError::NotFound(_))));
    assert!(LocalFiles::new(place.work("none")).is_err());
    assert!(LocalFiles::new(place.work("sub/a.txt")).is_err());
}

#[test]
fn writing_keeps_the_mode_and_leaves_nothing_behind() {
    let place = Place::new();
    let mode = |path: &str| place.work(path).metadata().unwrap().permissions().mode() & 0o777;
    let set = |path: &str, mode| {
        std::fs::set_permissions(place.work(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set("sub/a.txt", 0o751);
    let mut before = place.files.open("sub/a.txt").unwrap();
    place.files.write("sub/a.txt", b"#!/bin/sh").unwrap();
    assert_eq!(mode("sub/a.txt"), 0o751);
    let mut old = String::new();
    before.read_to_string(&mut old).unwrap();
    assert_eq!(old, "inside", "an open file keeps its old content");
    set("sub/a.txt", 0o444);
    let error = place.files.write("sub/a.txt", b"").unwrap_err();
    insta::assert_snapshot!(error, @"sub/a.txt is write-protected: leave it as it is, or ask for its protection to be removed");
    assert_eq!(place.files.read("sub/a.txt", 100).unwrap(), b"#!/bin/sh");
    assert_eq!(place.files.list("sub").unwrap().len(), 1);
}

#[test]
fn larger_than_asked_for() {
    let place = Place::new();
    assert_eq!(place.files.read("sub/a.txt", 6).unwrap(), b"inside");
    let error = place.files.read("sub/a.txt", 5).unwrap_err();
    insta::assert_snapshot!(error, @"sub/a.txt is larger than 5 bytes: read a part of it");
}

/// What both kinds of files do alike.
fn check_alike(files: &dyn Files) {
    files.write("b/c.txt", b"c").unwrap();
    files.write("a.txt", b"a").unwrap();
    files.write("b/d/e.txt", b"").unwrap();
    let names = |path: &str| -> Vec<_> {
        files.list(path).unwrap().into_iter().map(|entry| (entry.name, entry.kind)).collect()
    };
    let owned = |name: &str, kind| (name.to_owned(), kind);
    assert_eq!(names("."), [owned("a.txt", FileKind::File), owned("b", FileKind::Directory)]);
    assert_eq!(names("b"), [owned("c.txt", FileKind::File), owned("d", FileKind::Directory)]);
    assert_eq!(files.info("b/../a.txt").unwrap().path, "a.txt");
    assert_eq!(files.info("b/d/..").unwrap().kind, FileKind::Directory);
    assert_eq!(files.info("b/c.txt").unwrap().len, 1);
    assert!(matches!(files.open("../x"), Err(FileError::Outside(_))));
    assert!(matches!(files.open("b"), Err(FileError::IsDirectory(_))));
    assert!(matches!(files.open("x"), Err(FileError::NotFound(_))));
    assert!(matches!(files.list("x"), Err(FileError::NotFound(_))));
    assert!(matches!(files.list("a.txt"), Err(FileError::NotDirectory(_))));
    assert!(matches!(files.open(""), Err(FileError::Invalid(_))));
    assert!(matches!(files.open("a\0"), Err(FileError::Invalid(_))));
    assert!(matches!(files.write("b", b""), Err(FileError::IsDirectory(_))));
    assert!(matches!(files.write("a.txt/x", b""), Err(FileError::NotDirectory(_))));
    assert!(matches!(files.remove("x"), Err(FileError::NotFound(_))));
    files.remove("b/d/e.txt").unwrap();
    assert!(matches!(files.open("b/d/e.txt"), Err(FileError::NotFound(_))));
}

#[test]
fn memory_is_like_a_disk() {
    let place = tempfile::tempdir().unwrap();
    check_alike(&LocalFiles::new(place.path()).unwrap());
    check_alike(&MemoryFiles::default());
}

#[test]
fn only_what_was_read_is_changed() {
    let place = Place::new();
    let files = place.read_first(&KnownFiles::default());
    let unread = files.write("sub/a.txt", b"x").unwrap_err();
    insta::assert_snapshot!(unread, @"sub/a.txt exists, but was not read yet: read it before changing it");
    assert!(matches!(files.remove("sub/a.txt"), Err(FileError::Unread(_))));
    files.write("new.txt", b"mine").unwrap();
    files.write("new.txt", b"mine again").unwrap();

    read(&files, "./sub/a.txt");
    // As long as before, and within the same tick of the file system's clock.
    std::fs::write(place.work("sub/a.txt"), "INSIDE").unwrap();
    let changed = files.write("sub/a.txt", b"x").unwrap_err();
    insta::assert_snapshot!(changed, @"sub/a.txt has changed since it was read: read it again before changing it");
    assert!(matches!(files.remove("sub/a.txt"), Err(FileError::Changed(_))));
    assert_eq!(place.files.read("sub/a.txt", 100).unwrap(), b"INSIDE");

    read(&files, &place.absolute("sub/a.txt"));
    files.write("sub/a.txt", b"x").unwrap();
    files.remove("sub/a.txt").unwrap();
    std::fs::write(place.work("sub/a.txt"), "x").unwrap();
    assert!(matches!(files.write("sub/a.txt", b"y"), Err(FileError::Unread(_))));
    assert!(matches!(files.write("sub", b"y"), Err(FileError::IsDirectory(_))));
}

#[test]
fn what_was_read_counts_for_the_same_reader_and_no_other() {
    let place = Place::new();
    let first = place.read_first(&KnownFiles::default());
    read(&first, "./sub/../sub/a.txt");
    first.write("mine", b"1").unwrap();
    first.write("gone", b"1").unwrap();
    let recorded = first.recorded();
    let names: Vec<_> = recorded.iter().map(|(path, hash)| (&**path, hash.is_some())).collect();
    assert_eq!(names, [("gone", true), ("mine", true), ("sub/a.txt", true)]);
    first.remove("gone").unwrap();

    let known = KnownFiles::default();
    known.add(&recorded);
    let later = || place.read_first(&known);
    std::fs::write(place.work("gone"), "1").unwrap();
    later().may_change("gone").unwrap();
    known.add(&first.recorded());
    assert!(matches!(later().may_change("gone"), Err(FileError::Unread(_))));
    later().may_change(&place.absolute("sub/a.txt")).unwrap();

    let second = later();
    second.write("mine", b"2").unwrap();
    second.write("mine", b"3").unwrap();
    // Another reader does not know of it.
    assert!(matches!(later().may_change("mine"), Err(FileError::Changed(_))));
    let other = place.read_first(&KnownFiles::default());
    assert!(matches!(other.may_change("mine"), Err(FileError::Unread(_))));
    known.add(&second.recorded());
    later().may_change("mine").unwrap();
    let damaged = KnownFiles::default();
    damaged.add(&[("mine".to_owned(), Some("no hash".to_owned()))].into());
    let damaged = place.read_first(&damaged);
    assert!(matches!(damaged.may_change("mine"), Err(FileError::Changed(_))));
}

#[test]
fn a_large_file_is_known_without_being_kept() {
    let place = Place::new();
    let mut content = vec![b'x'; 20 << 20];
    std::fs::write(place.work("big"), &content).unwrap();
    let files = place.read_first(&KnownFiles::default());
    let mut start = [0; 4];
    files.open("big").unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"xxxx");
    content[19 << 20] = b'y';
    std::fs::write(place.work("big"), &content).unwrap();
    assert!(matches!(files.write("big", b""), Err(FileError::Changed(_))));
    assert!(read(&files, "big") == content);
    files.write("big", b"small").unwrap();
}

/// The path of a value in a directory of a run.
fn value_in(dir: &std::path::Path, digit: &str, json: &str) -> String {
    std::fs::create_dir_all(dir).unwrap();
    let path = dir.join(format!("{}.json", digit.repeat(64)));
    std::fs::write(&path, json).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn values_are_read_wherever_they_are() {
    let place = Place::new();
    let kept = [place.out("run/blobs"), place.work("store/run/blobs"), place.out("late")];
    let outside = value_in(&kept[0], "a", r#""one\ntwo""#);
    let inside = value_in(&kept[1], "b", r#"{"three":"\n"}"#);
    let nul = value_in(&kept[0], "f", r#""a\u0000b""#);
    let files = WithValues::new(place.files.clone(), kept.to_vec());
    let late = value_in(&kept[2], "c", r#""late""#);
    let relative = format!("../out/run/blobs/{}.json", "a".repeat(64));
    for (path, shown, content) in [
        (&outside, &outside, "one\ntwo"),
        (&format!("file://{outside}"), &outside, "one\ntwo"),
        (&relative, &outside, "one\ntwo"),
        (&late, &late, "late"),
        (&nul, &nul, "a\u{FFFD}b"),
        (&inside, &format!("store/run/blobs/{}.json", "b".repeat(64)), r#"{"three":"\n"}"#),
    ] {
        assert_eq!(files.read(path, 100).unwrap(), content.as_bytes(), "{path}");
        let info = files.info(path).unwrap();
        assert_eq!((info.path.as_str(), info.kind), (shown.as_str(), FileKind::File), "{path}");
        for changed in [files.write(path, b"changed"), files.remove(path)] {
            assert!(matches!(changed, Err(FileError::Protected(_))), "{path}: {changed:?}");
        }
    }
    assert_eq!(files.read("sub/a.txt", 100).unwrap(), b"inside");
    files.write(&format!("sub/{}.json", "d".repeat(64)), b"\"d\"").unwrap();
    assert_eq!(files.read(&format!("sub/{}.json", "d".repeat(64)), 9).unwrap(), b"\"d\"");
}

#[test]
fn nothing_but_values_is_read_elsewhere() {
    let place = Place::new();
    let blobs = place.out("run/blobs");
    let value = value_in(&blobs, "a", r#""one""#);
    let other = value_in(&place.out("other/blobs"), "b", r#""other""#);
    let deeper = value_in(&blobs.join("deeper"), "c", r#""deeper""#);
    let link = blobs.join(format!("{}.json", "d".repeat(64))).to_str().unwrap().to_owned();
    symlink(place.out("secret"), &link).unwrap();
    symlink(&value, place.work("link")).unwrap();
    std::fs::write(blobs.join("notes.json"), "secret").unwrap();
    let files = WithValues::new(place.files.clone(), vec![blobs.clone()]);
    let up = format!("{}/../../secret", blobs.display());
    let none = blobs.join(format!("{}.json", "e".repeat(64))).to_str().unwrap().to_owned();
    assert!(matches!(files.open(&none).map(drop), Err(FileError::NotFound(_))));
    let notes = blobs.join("notes.json").to_str().unwrap().to_owned();
    let blobs = blobs.to_str().unwrap();
    for path in [&other, &deeper, &link, &up, &notes, "link", blobs, "/etc/passwd"] {
        let opened = files.open(path).map(drop);
        assert!(matches!(opened, Err(FileError::Outside(_))), "{path}: {opened:?}");
        let found = files.info(path);
        assert!(matches!(found, Err(FileError::Outside(_))), "{path}: {found:?}");
    }
    for path in [blobs, &value] {
        assert!(matches!(files.list(path), Err(FileError::Outside(_))), "{path}");
    }
}

#[test]
fn trees_elsewhere_are_read_and_listed() {
    let place = Place::new();
    let tree = place.out("run/artifacts");
    std::fs::create_dir_all(tree.join("test")).unwrap();
    std::fs::write(tree.join("test/shot.png"), "pixels").unwrap();
    symlink(place.out("secret"), tree.join("link")).unwrap();
    let files = WithValues::new(place.files.clone(), Vec::new()).reading(vec![tree.clone()]);
    let path = |name: &str| tree.join(name).to_str().unwrap().to_owned();
    let shot = path("test/shot.png");
    assert_eq!(files.read(&shot, 100).unwrap(), b"pixels");
    assert_eq!(files.info(&shot).unwrap().path, shot);
    assert_eq!(files.list(&path("test")).unwrap().len(), 1);
    for changed in [files.write(&shot, b"x"), files.remove(&shot)] {
        assert!(matches!(changed, Err(FileError::Protected(_))), "{changed:?}");
    }
    for path in [path("link"), path("../../secret"), path("..")] {
        let opened = files.open(&path).map(drop);
        assert!(matches!(opened, Err(FileError::Outside(_))), "{path}: {opened:?}");
    }
}

#[test]
fn no_reader_overwrites_what_another_has_changed() {
    let place = Place::new();
    std::fs::write(place.work("sub/a.txt"), "x\n".repeat(20_000)).unwrap();
    let below = LocalFiles::new(place.work("sub")).unwrap();
    let change = |reader: usize| {
        let (files, path) = match reader % 2 {
            0 => (place.files.clone(), "sub/a.txt"),
            _ => (below.clone(), "a.txt"),
        };
        let known = KnownFiles::default();
        let mut changed = 0;
        for number in 0..50 {
            let files = ReadFirst::new(Arc::new(files.clone()), known.clone());
            let mut content = read(&files, path);
            content.extend(format!("{reader}.{number}\n").as_bytes());
            match files.write(path, &content) {
                Ok(()) => changed += 1,
                Err(error) => assert!(matches!(error, FileError::Changed(_)), "{error}"),
            }
        }
        changed
    };
    let changed: usize = std::thread::scope(|scope| {
        let change = &change;
        let readers: Vec<_> = (0..4).map(|reader| scope.spawn(move || change(reader))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    let content = std::fs::read_to_string(place.work("sub/a.txt")).unwrap();
    assert_eq!(content.lines().filter(|line| *line != "x").count(), changed);
}

#[test]
fn one_of_several_makes_a_new_file() {
    let place = Place::new();
    for number in 0..50 {
        let path = format!("sub/new/{number}.txt");
        let make = || place.read_first(&KnownFiles::default()).write(&path, b"new");
        let results: Vec<_> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 1, "{results:?}");
    }
}
