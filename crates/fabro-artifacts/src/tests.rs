use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;

struct Scene {
    dir: TempDir,
    watcher: Watcher,
}

impl Scene {
    fn new() -> Self {
        Self::with(&[], &[], Limits::default())
    }

    fn with(include: &[&str], exclude: &[&str], limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let owned = |list: &[&str]| list.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let rules = Rules::new(&owned(include), &owned(exclude)).unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        let watcher = Watcher::new(&work, rules, limits);
        Self { dir, watcher }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.watcher.root().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn keep(&self, baseline: &Baseline, to: &str) -> Collection {
        let changes = self.watcher.changes(baseline);
        let to = self.dir.path().join(to);
        let pool = self.dir.path().join("pool");
        let name = |path: &str| path.replace("secret", "[redacted]");
        self.watcher.keep(&changes, &Destination { files: &to, pool: &pool, name: &name })
    }

    /// What is kept of the changes that `change` makes.
    fn after(&self, change: impl FnOnce(&Self)) -> String {
        let baseline = self.watcher.baseline();
        change(self);
        shown(&self.keep(&baseline, "kept"))
    }
}

fn shown(collection: &Collection) -> String {
    let kept = collection.kept.iter().map(|it| format!("{} {}\n", it.path.escape_debug(), it.size));
    let left_out = collection.left_out.iter().map(|it| format!("not kept: {it}\n"));
    kept.chain(left_out).collect()
}

#[test]
fn reports_of_test_tools_are_found_anywhere() {
    let scene = Scene::new();
    let found = scene.after(|scene| {
        for path in [
            "playwright-report/index.html",
            "web/app/test-results/login/shot.png",
            "test-results/trace/resources/a.txt",
            "cypress/videos/a.mp4",
            "e2e/cypress/screenshots/b/c.png",
            "junit.xml",
            "build/reports/junit-unit.xml",
            "out/run.trace.zip",
            // These are not.
            "videos/a.mp4",
            "cypress/e2e/a.cy.js",
            "not-junit.xml",
            "junit.xml.bak",
            "node_modules/x/junit.xml",
            "target/nextest/junit.xml",
            ".yarn/cache/test-results/a",
            "test-results/node_modules/a",
            ".fabro/state/runs/1/junit.xml",
        ] {
            scene.write(path, path);
        }
    });
    insta::assert_snapshot!(found, @r"
    build/reports/junit-unit.xml 28
    cypress/videos/a.mp4 20
    e2e/cypress/screenshots/b/c.png 31
    junit.xml 9
    out/run.trace.zip 17
    playwright-report/index.html 28
    test-results/trace/resources/a.txt 34
    web/app/test-results/login/shot.png 35
    ");
}

#[test]
fn patterns_add_and_remove() {
    let include = ["coverage", "target/nextest/**/junit.xml", "*.log", "logs/*.txt"];
    let scene = Scene::with(&include, &["**/big.*", "test-results/tmp"], Limits::default());
    let found = scene.after(|scene| {
        for path in [
            "coverage/html/index.html",
            "target/nextest/ci/junit.xml",
            "target/nextest/ci/other.xml",
            "target/debug/junit.xml",
            "a.log",
            "deep/a.log",
            "logs/a.txt",
            "logs/deep/a.txt",
            "test-results/big.png",
            "test-results/tmp/a",
            "test-results/a",
        ] {
            scene.write(path, "");
        }
    });
    insta::assert_snapshot!(found, @r"
    a.log 0
    coverage/html/index.html 0
    logs/a.txt 0
    target/nextest/ci/junit.xml 0
    test-results/a 0
    ");
    let error = Rules::new(&["a[".to_owned()], &[]).unwrap_err();
    insta::assert_snapshot!(error, @"`a[` is not a glob pattern: unclosed character class; missing ']'");
}

#[test]
fn size_and_time_tell_what_changed() {
    let scene = Scene::new();
    let old = SystemTime::now() - Duration::from_secs(1_000_000);
    let age = |scene: &Scene, path: &str| {
        File::options().write(true).open(scene.path(path)).unwrap().set_modified(old).unwrap();
    };
    for name in ["same", "rewritten", "longer", "touched", "gone"] {
        let path = format!("test-results/{name}");
        scene.write(&path, "one");
        age(&scene, &path);
    }
    let found = scene.after(|scene| {
        // Other bytes, but size and time are the same.
        scene.write("test-results/rewritten", "two");
        age(scene, "test-results/rewritten");
        scene.write("test-results/longer", "three");
        age(scene, "test-results/longer");
        scene.write("test-results/touched", "one");
        // As an archive leaves it.
        scene.write("test-results/unpacked", "one");
        age(scene, "test-results/unpacked");
        fs::remove_file(scene.path("test-results/gone")).unwrap();
    });
    insta::assert_snapshot!(found, @r"
    test-results/longer 5
    test-results/touched 3
    test-results/unpacked 3
    ");
    assert_eq!(scene.after(|_| {}), "");
    let resumed = |earlier| {
        let baseline = scene.watcher.baseline().and_earlier(Some(earlier));
        scene.watcher.changes(&baseline).files.len()
    };
    assert_eq!(resumed(0..=i64::MAX), 5);
    assert_eq!(resumed(0..=1_000_000), 0, "they changed after the program had ended");
}

#[test]
fn limits_hold_at_the_byte() {
    let limits = Limits { file: 10, total: 25, ..Limits::default() };
    let scene = Scene::with(&[], &[], limits);
    let found = scene.after(|scene| {
        for (name, bytes) in [("a", 10), ("b", 11), ("c", 9), ("d", 7), ("e", 6), ("f", 1)] {
            scene.write(&format!("test-results/{name}"), &"x".repeat(bytes));
        }
    });
    insta::assert_snapshot!(found, @r"
    test-results/a 10
    test-results/c 9
    test-results/e 6
    not kept: test-results/b: it has 11 bytes, and an artifact at most 10
    not kept: test-results/d: it has 7 bytes, and with those before it one collection at most 25
    not kept: test-results/f: it has 1 bytes, and with those before it one collection at most 25
    ");
    let limits = Limits { files: 1, ..Limits::default() };
    let scene = Scene::with(&[], &[], limits);
    let found = scene.after(|scene| {
        scene.write("junit-1.xml", "");
        scene.write("junit-2.xml", "");
    });
    insta::assert_snapshot!(found, @r"
    junit-1.xml 0
    not kept: junit-2.xml: one collection has at most 1 files
    ");
}

#[test]
fn what_is_no_regular_file_is_left_out() {
    let scene = Scene::new();
    scene.write("outside.png", "secret");
    let found = scene.after(|scene| {
        let results = scene.path("test-results");
        fs::create_dir(&results).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", results.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", results.join("dir")).unwrap();
        std::os::unix::fs::symlink("/etc", scene.path("playwright-report")).unwrap();
        std::os::unix::fs::symlink("gone", scene.path("junit.xml")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(results.join("fifo")).status();
        assert!(made.unwrap().success());
        std::os::unix::net::UnixListener::bind(results.join("socket")).unwrap();
    });
    insta::assert_snapshot!(found, @r"
    not kept: junit.xml: a symbolic link, which is not followed
    not kept: playwright-report: a symbolic link, which is not followed
    not kept: test-results/dir: a symbolic link, which is not followed
    not kept: test-results/fifo: a FIFO, not a regular file
    not kept: test-results/link: a symbolic link, which is not followed
    not kept: test-results/socket: a socket, not a regular file
    ");
}

#[test]
fn a_file_that_changes_meanwhile_is_reported() {
    let scene = Scene::with(&[], &[], Limits { file: 10, ..Limits::default() });
    let baseline = scene.watcher.baseline();
    for name in ["vanished", "linked", "grown"] {
        scene.write(&format!("test-results/{name}"), "short");
    }
    scene.write("a/test-results/x", "short");
    let changes = scene.watcher.changes(&baseline);
    fs::remove_file(scene.path("test-results/vanished")).unwrap();
    fs::remove_file(scene.path("test-results/linked")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", scene.path("test-results/linked")).unwrap();
    fs::rename(scene.path("a"), scene.path("b")).unwrap();
    std::os::unix::fs::symlink("b", scene.path("a")).unwrap();
    scene.write("test-results/grown", "longer than that");
    let to = scene.dir.path().join("kept");
    let pool = scene.dir.path().join("pool");
    let to = Destination { files: &to, pool: &pool, name: &|name| name.to_owned() };
    insta::assert_snapshot!(shown(&scene.watcher.keep(&changes, &to)), @r"
    not kept: a/test-results/x: a symbolic link, which is not followed
    not kept: test-results/grown: it has 16 bytes, and an artifact at most 10
    not kept: test-results/linked: a symbolic link, which is not followed
    not kept: test-results/vanished: it vanished before it was copied
    ");
}

#[test]
fn odd_names_are_kept() {
    let scene = Scene::new();
    let found = scene.after(|scene| {
        let results = scene.path("test-results");
        fs::create_dir(&results).unwrap();
        for name in [&b"two\nlines"[..], b"b\xFFad", b"\\xFF", b"\xFF", b"-rf", b"secret.png"] {
            fs::write(results.join(OsStr::from_bytes(name)), name).unwrap();
        }
    });
    insta::assert_snapshot!(found, @r"
    test-results/-rf 3
    test-results/\\xFF 4
    test-results/b\\xFFad 4
    test-results/[redacted].png 10
    test-results/two\nlines 9
    not kept: test-results/\\xFF: another file has the name that it would be kept under
    ");
    assert!(scene.dir.path().join("kept/test-results/two\nlines").exists());
}

#[test]
fn equal_files_are_stored_once_and_removed_with_their_last_name() {
    let scene = Scene::new();
    let baseline = scene.watcher.baseline();
    scene.write("test-results/a", "equal");
    scene.write("test-results/b", "equal");
    let first = scene.keep(&baseline, "runs/1/retry_1");
    scene.write("test-results/c", "other");
    let second = scene.keep(&baseline, "runs/1/retry_2");
    assert_eq!(first.kept.len() + second.kept.len(), 5);
    let kept = |path: &str| scene.dir.path().join("runs/1").join(path);
    let inode = |path: &str| fs::metadata(kept(path)).unwrap().ino();
    let inodes = ["retry_1/test-results/a", "retry_1/test-results/b", "retry_2/test-results/a"];
    assert!(inodes.iter().all(|path| inode(path) == inode(inodes[0])));
    // The bytes do not change with the file they were copied from.
    scene.write("test-results/a", "changed");
    assert_eq!(fs::read_to_string(kept("retry_1/test-results/a")).unwrap(), "equal");
    let pool = scene.dir.path().join("pool");
    assert_eq!(sweep(&pool).unwrap(), 0);
    fs::remove_dir_all(kept("retry_2")).unwrap();
    assert_eq!(sweep(&pool).unwrap(), 5);
    fs::remove_dir_all(kept("")).unwrap();
    assert_eq!(sweep(&pool).unwrap(), 5);
    assert_eq!(sweep(Path::new("/nowhere")).unwrap(), 0);
}

#[test]
fn files_of_others_in_the_directory_of_a_pool_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let hash = "0".repeat(62);
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    let write = |path: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "1234").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    };
    let others = [
        "README",
        "release/v1.tar",
        &format!("release/{hash}"),
        "ab/v1.tar",
        &format!("ab/{}", "A".repeat(62)),
        &format!("ab/{hash}0"),
        &format!("AB/{hash}"),
    ];
    for path in others {
        write(path);
    }
    write(&format!("ab/{hash}"));
    write(".copy-Ab12Cd");
    assert_eq!(pool_usage(dir.path()).unwrap().unnamed, 4);
    assert_eq!(sweep(dir.path()).unwrap(), 8);
    for path in others {
        assert!(dir.path().join(path).exists(), "{path}");
    }
    assert!(!dir.path().join("ab").join(hash).exists());
    assert!(!dir.path().join(".copy-Ab12Cd").exists());
}

#[test]
fn a_stored_file_is_checked() {
    let scene = Scene::new();
    let baseline = scene.watcher.baseline();
    scene.write("junit.xml", "report");
    let run_dir = scene.dir.path().join("runs/1");
    let pool = pool_of(&run_dir);
    let changes = scene.watcher.changes(&baseline);
    let files = run_dir.join("files");
    let to = Destination { files: &files, pool: &pool, name: &|name| name.to_owned() };
    let kept = scene.watcher.keep(&changes, &to).kept.remove(0);
    let find = |path: &str, hash: &str| match stored_file(&run_dir, path, hash) {
        Ok(path) => path.strip_prefix(scene.dir.path()).unwrap().to_string_lossy().into_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(find("files/junit.xml", &kept.sha256), "runs/1/files/junit.xml");
    fs::remove_file(files.join("junit.xml")).unwrap();
    assert_eq!(
        find("files/junit.xml", &kept.sha256),
        format!("artifacts/{}/{}", &kept.sha256[..2], &kept.sha256[2..])
    );
    fs::write(files.join("junit.xml"), "other").unwrap();
    assert!(find("files/junit.xml", &kept.sha256).starts_with("artifacts/"));
    fs::remove_dir_all(&pool).unwrap();
    insta::assert_snapshot!(find("files/junit.xml", &kept.sha256), @"the artifact files/junit.xml has been changed in the store");
    insta::assert_snapshot!(find("../../junit.xml", &kept.sha256), @"the artifact ../../junit.xml is missing from the store");
}

#[test]
fn a_scan_has_an_end() {
    let scene = Scene::with(&[], &[], Limits { entries: 100, ..Limits::default() });
    for index in 0..20 {
        for file in 0..10 {
            scene.write(&format!("d{index:02}/f{file}"), "");
        }
    }
    scene.write("z/test-results/old", "");
    let found = scene.after(|scene| scene.write("d00/junit.xml", ""));
    insta::assert_snapshot!(found, @r"
    d00/junit.xml 0
    not kept: the search for artifacts stopped after 100 directory entries; some may be missing: exclude large directories
    ");
    let scene = Scene::with(&[], &[], Limits { entries: 100, ..Limits::default() });
    for file in 0..200 {
        scene.write(&format!("a/b/f{file}"), "");
    }
    let found = scene.after(|scene| scene.write("test-results/late", ""));
    assert!(found.starts_with("test-results/late 0\n"), "{found}");
    let scene = Scene::with(&[], &[], Limits { time: Duration::ZERO, ..Limits::default() });
    let found = scene.after(|scene| scene.write("junit.xml", ""));
    insta::assert_snapshot!(found, @"not kept: the search for artifacts stopped after 0ns; some may be missing: exclude large directories");
}

#[test]
fn directories_are_read_again_only_when_they_changed() {
    let scene = Scene::new();
    scene.write("a/b/plain", "");
    let baseline = scene.watcher.baseline();
    scene.write("a/b/test-results/x", "");
    let rest = |collection: Collection| shown(&collection);
    insta::assert_snapshot!(rest(scene.keep(&baseline, "1")), @"a/b/test-results/x 0");
    let baseline = scene.watcher.baseline();
    fs::remove_dir_all(scene.path("a/b")).unwrap();
    fs::write(scene.path("a/b"), "a file where there was a directory").unwrap();
    assert_eq!(rest(scene.keep(&baseline, "2")), "");
    fs::remove_file(scene.path("a/b")).unwrap();
    scene.write("a/b/test-results/y", "");
    insta::assert_snapshot!(rest(scene.keep(&baseline, "3")), @"a/b/test-results/y 0");
}
