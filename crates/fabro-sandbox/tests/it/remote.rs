//! What scripts in copies of the working directory see, and what comes back. A test whose engine or program is not
//! there is skipped, and says so.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use fabro_sandbox::{
    Captured, EngineSettings, ExecError, Files as _, InSandbox, Language, LocalExec, LocalFiles,
    Sandbox, WithValues,
};
use fabro_sandbox::{Exit, SshSettings};

use crate::conformance::{Ground, running, seconds, ssh_settings, until};
use crate::server::{Server, drop_connections, image};

/// A test for every provider that copies the working directory.
macro_rules! for_copies {
    ($($test:ident)*) => {
        mod docker_copy {
            $(#[tokio::test]
            async fn $test() {
                if let Some(ground) = super::Ground::docker_copy().await {
                    super::$test(ground).await;
                }
            })*
        }
        mod ssh {
            $(#[tokio::test]
            async fn $test() {
                if let Some(ground) = super::Ground::ssh().await {
                    super::$test(ground).await;
                }
            })*
        }
    };
}

for_copies! {
    what_changes_on_one_side_is_changed_on_the_other
    what_other_programs_obey_does_not_come_back
    nothing_is_written_through_links
    scripts_beside_each_other_lose_nothing
    too_much_is_not_copied_back
    values_and_artifacts_are_in_the_working_directory
    a_push_that_fails_takes_nothing_from_a_running_script
    a_copy_that_is_lost_is_made_again_and_removes_nothing_here
    a_script_may_remove_everything_in_its_working_directory
    one_script_that_is_lost_ends_alone
}

async fn what_changes_on_one_side_is_changed_on_the_other(ground: Ground) {
    let work = ground.path("work");
    let write = |name: &str, text: &str| {
        let path = work.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("a/b/file", "one");
    write("gone/file", "x");
    write("run.sh", "echo ran");
    write("node_modules/of/host", "x");
    write(" odd 'na\"me", "odd");
    std::fs::set_permissions(work.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a/b/file", work.join("link")).unwrap();
    let script = "cat a/b/file link; cat *odd*; ./run.sh; ls node_modules; \
        rm -r gone; echo two > a/b/file; mkdir -p new/dir node_modules; echo x > node_modules/of_sandbox; \
        echo made > new/dir/file; chmod 700 new/dir/file; ln -s dir/file new/link; ln new/dir/file new/same; \
        mv link renamed; rm a/b/../b/nothing";
    let output = ground.output(script).await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(&lines[..2], ["oneoneoddran", lines[1]], "{output}");
    assert!(lines[1].contains("node_modules"), "{output}");
    let read = |name: &str| std::fs::read_to_string(work.join(name)).unwrap();
    assert_eq!(read("a/b/file"), "two\n");
    assert_eq!(
        (read("new/dir/file"), read("new/link"), read("new/same")),
        ("made\n".into(), "made\n".into(), "made\n".into())
    );
    let mode = std::fs::metadata(work.join("new/dir/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(std::fs::read_link(work.join("renamed")).unwrap(), PathBuf::from("a/b/file"));
    assert!(!work.join("gone").exists() && std::fs::symlink_metadata(work.join("link")).is_err());
    assert!(work.join("node_modules/of/host").exists());
    assert!(!work.join("node_modules/of_sandbox").exists());
    // And back, with a change of kind.
    std::fs::remove_dir_all(work.join("new")).unwrap();
    write("new", "a file now");
    std::fs::remove_file(work.join("renamed")).unwrap();
    write("renamed/x", "a directory now");
    let output = ground.output("cat new renamed/x; ls node_modules; cat a/b/file").await;
    assert_eq!(output, "a file nowa directory nowof_sandbox\ntwo\nCode(0)");
    // A directory that becomes a file, and a link that becomes one.
    ground.output("rm -r renamed; echo f > renamed; rm new; mkdir new").await;
    assert_eq!(read("renamed"), "f\n");
    assert!(work.join("new").is_dir());
}

async fn what_other_programs_obey_does_not_come_back(ground: Ground) {
    let script = "cat .git/config .fabro/config.toml; cat .fabro/state/fabro.db; echo evil >> .git/config; \
        echo x > .git/hooks/pre-commit; echo evil > .fabro/config.toml; mkdir -p sub/.git; echo x > sub/.git/HEAD; echo y > kept";
    let output = ground.output(script).await;
    assert!(output.starts_with("[core]_version = 1"), "{output}");
    assert!(output.contains("No such file"), "the store is not copied: {output}");
    let work = ground.path("work");
    let read = |name: &str| std::fs::read_to_string(work.join(name)).unwrap_or_default();
    assert_eq!(read(".git/config"), "[core]");
    assert_eq!(read(".fabro/config.toml"), "_version = 1");
    assert_eq!(
        (read("kept"), read("sub/.git/HEAD"), read(".git/hooks/pre-commit")),
        ("y\n".into(), String::new(), String::new())
    );
}

async fn nothing_is_written_through_links(ground: Ground) {
    let outside = ground.path("outside");
    let dir = ground.path("elsewhere");
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(ground.path("work/d")).unwrap();
    std::fs::write(ground.path("work/d/file"), "x").unwrap();
    // The script replaces a directory by a link, in which the next one makes files; and the same here, behind its back.
    ground
        .output(&format!("rm -r d; ln -s {} d; ln -s {} f", dir.display(), outside.display()))
        .await;
    assert!(ground.path("work/d").is_symlink());
    ground.output("rm d f; mkdir d; echo y > d/file; echo y > f").await;
    assert!(!dir.join("file").exists());
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "visible");
    assert_eq!(std::fs::read_to_string(ground.path("work/d/file")).unwrap(), "y\n");
    let script =
        "echo up; n=0; until test $n = 20; do n=$((n+1)); sleep 0.05; done; echo z > d/file";
    let (finished, ()) = tokio::join!(ground.try_run(script), async {
        ground.printed("up").await;
        std::fs::remove_dir_all(ground.path("work/d")).unwrap();
        symlink(&dir, ground.path("work/d")).unwrap();
    });
    let Err(ExecError::Workspace(message)) = finished else { panic!("{finished:?}") };
    assert!(message.starts_with("d/file: "), "{message}");
    assert!(!dir.join("file").exists());
}

async fn scripts_beside_each_other_lose_nothing(ground: Ground) {
    let work = ground.path("work");
    let script =
        "echo early > early; echo up; until test -e go; do sleep 0.02; done; echo late > late";
    let exec = Arc::clone(&ground.exec);
    let (finished, ()) = tokio::join!(ground.run(script), async {
        ground.printed("up").await;
        // It brings a file that the first one waits for.
        std::fs::write(work.join("go"), "").unwrap();
        let output = ground.output_by(&*exec, "cat early; echo other > other").await;
        assert_eq!(output, "early\nCode(0)");
    });
    assert_eq!(finished.exit, Exit::Code(0));
    for name in ["early", "late", "other"] {
        assert_eq!(std::fs::read_to_string(work.join(name)).unwrap(), format!("{name}\n"));
    }
}

async fn too_much_is_not_copied_back(ground: Ground) {
    let finished = ground.try_run("head -c 60000000 /dev/zero > big").await;
    let Err(ExecError::Workspace(message)) = finished else { panic!("{finished:?}") };
    assert!(message.contains("60000000") && message.contains("copy_limit"), "{message}");
    assert!(!ground.path("work/big").exists());
    assert_eq!(ground.output("rm big; echo x > small").await, "\nCode(0)");
    assert!(ground.path("work/small").exists());
}

async fn values_and_artifacts_are_in_the_working_directory(mut ground: Ground) {
    let name = format!("{}.json", "0a".repeat(32));
    let runs = ground.path("store/runs");
    for dir in ["1/blobs", "1/files/a", "1/files/b"] {
        std::fs::create_dir_all(runs.join(dir)).unwrap();
    }
    std::fs::write(runs.join("1/blobs").join(&name), "\"a value\"").unwrap();
    std::fs::write(runs.join("1/files/a/report.xml"), "<a/>").unwrap();
    std::fs::write(runs.join("1/files/b/report.xml"), "<b/>").unwrap();
    let reads = [runs.join("1/blobs"), runs.join("1/files")];
    let work = ground.path("work");
    let sandbox = Arc::clone(ground.sandbox.as_ref().unwrap());
    let prompt = format!(
        "See: file://{0}/1/blobs/{name} and {0}/1/files/a/report.xml, {0}/fabro.db",
        runs.display()
    );
    let shown = sandbox.shown(&prompt, &work, &reads).into_owned();
    let remote = ground.remote_path("");
    assert_eq!(
        shown,
        format!(
            "See: file://{remote}/.fabro/blobs/{name} and {remote}/.fabro/artifacts/report.xml, {}/fabro.db",
            runs.display()
        )
    );
    // What an agent was shown, and what a script has from its template.
    let shown: Vec<&str> = shown.split(' ').collect();
    let value = shown[1].strip_prefix("file://").unwrap();
    ground.env =
        vec![("REPORT".to_owned(), runs.join("1/files/b/report.xml").display().to_string())];
    let script = format!(
        "cat {value}; cat .fabro/artifacts/report.xml $REPORT; echo $REPORT; cat {}/store/fabro.db || echo hidden",
        ground.dir.path().display()
    );
    let finished =
        ground.run_in(&work, &format!("exec 2>/dev/null; {script}"), Language::Shell, &reads).await;
    let Captured::Text(text) = finished.stdout else { panic!() };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0].split(".fabro/artifacts/report-").next().unwrap(),
        format!("\"a value\"<a/><b/>{remote}/"),
        "{text}"
    );
    assert_eq!(
        lines[1..].concat(),
        if remote == work.canonicalize().unwrap().to_str().unwrap() { "hidden" } else { "events" }
    );
    // The tools of an agent read the same files under the same paths.
    let local = LocalFiles::new(&work).unwrap();
    let files = WithValues::new(local, vec![reads[0].clone()]).reading(vec![reads[1].clone()]);
    let files = InSandbox::new(files, sandbox, work.clone(), reads.to_vec());
    let read = |path: &str| files.read(path, 100).map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(read(value).unwrap(), "a value");
    assert_eq!(read(&format!(".fabro/blobs/{name}")).unwrap(), "a value");
    assert_eq!(read(".fabro/artifacts/report.xml").unwrap(), "<a/>");
    files.write(&format!("{remote}/new"), b"x").unwrap();
    assert_eq!(std::fs::read_to_string(work.join("new")).unwrap(), "x");
    assert!(files.write(value, b"x").is_err());
    // Nothing of it is left in the working directory of this machine.
    assert!(!work.join(".fabro/blobs").exists() && !work.join(".fabro/artifacts").exists());
}

/// A file that has changed here cannot be copied, because a script has a directory in its place.
async fn a_push_that_fails_takes_nothing_from_a_running_script(ground: Ground) {
    let read = |name: &str| std::fs::read_to_string(ground.path("work").join(name));
    std::fs::create_dir(ground.path("work/d")).unwrap();
    std::fs::write(ground.path("work/d/f"), "x").unwrap();
    let script = "rm d/f; mkdir d/f; touch d/f/x; echo x > only_there; echo up; \
        until test -e go; do sleep 0.02; done; rm -r d/f; echo restored > d/f; cat only_there > result";
    let exec = Arc::clone(&ground.exec);
    let (finished, ()) = tokio::join!(ground.run(script), async {
        ground.printed("up").await;
        std::fs::write(ground.path("work/d/f"), "changed here").unwrap();
        let failed = ground.try_run_by(&*exec, "true").await;
        assert!(matches!(failed, Err(ExecError::Lost { .. })), "{failed:?}");
        std::fs::write(ground.path("work/go"), "").unwrap();
        // The second one knows what is in the way.
        assert_eq!(ground.output_by(&*exec, "true").await, "\nCode(0)");
    });
    assert_eq!(finished.exit, Exit::Code(0));
    let found = (read("d/f").unwrap(), read("only_there").unwrap(), read("result").unwrap());
    assert_eq!(found, ("restored\n".to_owned(), "x\n".to_owned(), "x\n".to_owned()));
}

/// Another directory at the same path, which has nothing of the working directory.
async fn a_copy_that_is_lost_is_made_again_and_removes_nothing_here(ground: Ground) {
    std::fs::write(ground.path("work/here"), "x").unwrap();
    let base = match &ground.server {
        Some(_) => "$PWD/../run",
        None => "/run/fabro",
    };
    let script = format!("rm -rf {base}/.copy-* ./* .git .fabro; echo y > made");
    let finished = ground.try_run(&script).await;
    let Err(ExecError::Lost { message, .. }) = finished else { panic!("{finished:?}") };
    assert!(message.contains("the copy of the working directory was lost"), "{message}");
    assert_eq!(ground.output("cat here; ls").await, "xhere\nCode(0)");
}

/// `git clean -fdx`, or a script that begins from nothing.
async fn a_script_may_remove_everything_in_its_working_directory(ground: Ground) {
    std::fs::write(ground.path("work/here"), "x").unwrap();
    let output = ground.output("rm -rf .fabro; echo 1 > one").await;
    assert_eq!(output, "\nCode(0)");
    assert!(ground.path("work/here").exists() && ground.path("work/one").exists());
    let output = ground.output("rm -rf ./* .git .fabro; echo y > made; exit 3").await;
    assert_eq!(output, "\nCode(3)");
    let names = |dir: &str| {
        let entries = std::fs::read_dir(ground.path(dir)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // What other programs obey stays here.
    assert_eq!(names("work"), [".fabro", ".git", "made"]);
    assert!(ground.path("work/.fabro/config.toml").exists());
    assert_eq!(ground.output("ls -A; cat made").await, "made\ny\nCode(0)");
}

/// The client of one script is gone, not the connection: only that script is lost, and it is ended before the next one.
async fn one_script_that_is_lost_ends_alone(ground: Ground) {
    let seconds = seconds();
    let script = format!("echo up; sleep {seconds}; echo late > late");
    let other = "echo started > started; until test -e go; do sleep 0.02; done; echo end > end";
    let (is_lost, lost) = tokio::sync::oneshot::channel();
    let exec = Arc::clone(&ground.exec);
    let ((), other, ()) = tokio::join!(
        async {
            let finished = ground.try_run(&script).await;
            assert!(matches!(finished, Err(ExecError::Lost { .. })), "{finished:?}");
            is_lost.send(()).unwrap();
        },
        async {
            ground.printed("up").await;
            let first = clients(&ground);
            assert_eq!(first.len(), 1, "{first:?}");
            let other = ground.try_run_by(&*exec, other);
            let kill_first = async {
                until("the other one runs", || clients(&ground).len() == 2).await;
                Command::new("kill").arg("-9").args(&first).status().unwrap();
            };
            tokio::join!(other, kill_first).0
        },
        async {
            lost.await.unwrap();
            assert!(running(&format!("sleep\0{seconds}")) > 0, "it does not end with its client");
            // The next script ends it, and brings what the other one waits for.
            std::fs::write(ground.path("work/go"), "").unwrap();
            assert_eq!(ground.output_by(&*exec, "echo next").await, "next\nCode(0)");
            assert_eq!(running(&format!("sleep\0{seconds}")), 0);
        }
    );
    assert_eq!(other.unwrap().exit, Exit::Code(0));
    for (name, there) in [("started", true), ("end", true), ("late", false)] {
        assert_eq!(ground.path("work").join(name).exists(), there, "{name}");
    }
}

/// The clients of scripts in this sandbox.
fn clients(ground: &Ground) -> Vec<String> {
    let run = ground.settings.as_ref().unwrap().run.to_lowercase();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).to_lowercase();
        if command.contains(&run) && command.contains("ifs= read -r l") {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

/// The store may be in the working directory, under any name.
#[tokio::test]
async fn what_is_hidden_in_the_working_directory_is_not_written() {
    let hide = |settings: &mut fabro_sandbox::RemoteSettings| {
        let store = settings.work_dir.join("my store");
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join("fabro.db"), "events").unwrap();
        std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o700)).unwrap();
        settings.hidden.push(store);
        let other = settings.work_dir.join("sub/other");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("fabro.db"), "events").unwrap();
    };
    for ground in [Ground::docker_with(true, hide).await, Ground::ssh_with(hide).await] {
        let Some(ground) = ground else { continue };
        let script = "mkdir -p 'my store/runs'; chmod 755 'my store'; echo pwned > 'my store/fabro.db'; echo x > made";
        assert_eq!(ground.output(script).await, "\nCode(0)");
        let store = ground.path("work/my store");
        assert_eq!(std::fs::read_to_string(store.join("fabro.db")).unwrap(), "events");
        assert_eq!(std::fs::metadata(&store).unwrap().mode() & 0o777, 0o700);
        assert!(!store.join("runs").exists() && ground.path("work/made").exists());
        let script =
            "ls sub; mkdir -p sub/other; echo pwned > sub/other/fabro.db; echo x > sub/new";
        assert_eq!(ground.output(script).await, "\nCode(0)");
        let other = ground.path("work/sub/other/fabro.db");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "events");
        assert!(ground.path("work/sub/new").exists());
        // It is never removed either, and stays hidden.
        assert_eq!(ground.output("rm -r 'my store' sub/other; ls").await, "made\nsub\nCode(0)");
        assert!(other.exists());
        assert!(store.join("fabro.db").exists());
    }
}

/// The folder of the workflow may be read, and it may be the working directory.
#[tokio::test]
async fn a_file_of_the_working_directory_is_written_by_its_whole_path() {
    let grounds = [
        Ground::docker_with(false, |_| {}).await,
        Ground::docker_with(true, |_| {}).await,
        Ground::ssh().await,
    ];
    for ground in grounds.into_iter().flatten() {
        let work = ground.path("work").canonicalize().unwrap();
        std::fs::write(work.join("data.txt"), "one\n").unwrap();
        let script = format!("echo more >> {}", work.join("data.txt").display());
        let finished = ground.try_reading(&script, std::slice::from_ref(&work)).await.unwrap();
        assert_eq!(finished.exit, Exit::Code(0));
        assert_eq!(std::fs::read_to_string(work.join("data.txt")).unwrap(), "one\nmore\n");
    }
}

/// Else the script would run without them, or with a part of one.
#[tokio::test]
async fn a_script_does_not_start_without_the_values_that_it_names() {
    let grounds = [
        Ground::docker_with(false, |_| {}).await,
        Ground::docker_with(true, |_| {}).await,
        Ground::ssh().await,
    ];
    for ground in grounds.into_iter().flatten() {
        let file = ground.path("store/report.xml");
        std::fs::write(&file, "<a/>").unwrap();
        let reads = [ground.path("store")];
        ground.output("mkdir -p .fabro; rm -rf .fabro/artifacts; echo x > .fabro/artifacts").await;
        let script = format!("cat {}; echo ran > ran", file.display());
        let finished = ground.try_reading(&script, &reads).await;
        assert!(matches!(finished, Err(ExecError::Lost { .. })), "{finished:?}");
        ground.output("rm .fabro/artifacts").await;
        assert!(!ground.path("work/ran").exists());
        let finished = ground.try_reading(&script, &reads).await.unwrap();
        assert_eq!(finished.stdout, Captured::Text("<a/>".to_owned()));
    }
}

/// What one driver has left is ended by the next one, which finds the sandbox again.
#[tokio::test]
async fn the_next_driver_finds_the_sandbox_and_ends_what_runs_there() {
    for copy in [false, true] {
        let Some(image) = image() else { return };
        let ground = Ground::docker_with(copy, |_| {}).await.unwrap();
        let settings = ground.settings.clone().unwrap();
        takes_over(&ground, settings).await;
        assert!(!image.is_empty());
    }
}

#[tokio::test]
async fn the_next_driver_ends_what_runs_on_the_other_machine() {
    let Some(ground) = Ground::ssh().await else { return };
    let settings = ground.settings.clone().unwrap();
    takes_over(&ground, settings).await;
}

async fn takes_over(ground: &Ground, settings: fabro_sandbox::RemoteSettings) {
    let seconds = seconds();
    let script = format!(
        "echo kept > /tmp/{seconds}; sleep {seconds} & setsid sleep {seconds} & echo up; wait"
    );
    let (first, ()) = tokio::join!(ground.try_run(&script), async {
        ground.printed("up").await;
        until("both run", || running(&format!("sleep\0{seconds}")) == 2).await;
        let next = Arc::new(Sandbox::remote(settings).unwrap());
        next.start().await.unwrap();
        assert_eq!(running(&format!("sleep\0{seconds}")), 0);
        let exec = LocalExec::new().in_sandbox(next);
        let output =
            ground.output_by(&exec, &format!("cat /tmp/{seconds}; rm /tmp/{seconds}")).await;
        assert_eq!(output, "kept\nCode(0)");
    });
    assert!(!matches!(&first, Ok(finished) if finished.exit == Exit::Code(0)), "{first:?}");
}

/// The connection breaks in the middle of a script, which is ended before the next one.
#[tokio::test]
async fn a_connection_that_breaks_is_made_again() {
    let Some(ground) = Ground::ssh().await else { return };
    let seconds = seconds();
    let script = format!("echo up; sleep {seconds}; echo late > late");
    let (finished, ()) = tokio::join!(ground.try_run(&script), async {
        ground.printed("up").await;
        drop_connections(ground.server.as_ref().unwrap());
    });
    assert!(matches!(finished, Err(ExecError::Lost { .. })), "{finished:?}");
    assert!(running(&format!("sleep\0{seconds}")) > 0, "it does not end with the connection");
    assert_eq!(ground.output("echo next > made").await, "\nCode(0)");
    assert_eq!(running(&format!("sleep\0{seconds}")), 0);
    assert!(ground.path("work/made").exists() && !ground.path("work/late").exists());
}

/// The machine is away in the middle of a script, and for the next one; then it is there again.
#[tokio::test]
async fn a_machine_that_is_away_is_used_again_when_it_is_back() {
    let Some(mut ground) = Ground::ssh().await else { return };
    std::fs::write(ground.path("work/given"), "1").unwrap();
    let seconds = seconds();
    let script = format!("echo up; echo half > half; sleep {seconds}; echo late > late");
    let (finished, ()) = tokio::join!(ground.try_run(&script), async {
        ground.printed("up").await;
        let server = ground.server.as_ref().unwrap();
        drop_connections(server);
        Command::new("kill").args(["-9", &server.child.id().to_string()]).status().unwrap();
    });
    assert!(matches!(finished, Err(ExecError::Lost { .. })), "{finished:?}");
    for _ in 0..2 {
        let finished = ground.try_run("echo ran > ran").await;
        assert!(matches!(finished, Err(ExecError::Lost { .. })), "{finished:?}");
    }
    std::fs::write(ground.path("work/given"), "two").unwrap();
    ground.server.as_mut().unwrap().restart();
    // What the lost script has changed is still in the copy, and comes back with the next one.
    assert_eq!(ground.output("cat given half; echo next > next").await, "twohalf\nCode(0)");
    assert_eq!(running(&format!("sleep\0{seconds}")), 0);
    for (name, there) in [("next", true), ("half", true), ("late", false), ("ran", false)] {
        assert_eq!(ground.path("work").join(name).exists(), there, "{name}");
    }
}

/// The connection was lost while no script ran.
#[tokio::test]
async fn a_connection_that_was_lost_between_two_scripts_is_made_again() {
    let Some(mut ground) = Ground::ssh().await else { return };
    assert_eq!(ground.output("echo one > one").await, "\nCode(0)");
    drop_connections(ground.server.as_ref().unwrap());
    ground.server.as_mut().unwrap().restart();
    std::fs::write(ground.path("work/two"), "2").unwrap();
    assert_eq!(ground.output("cat one two").await, "one\n2\nCode(0)");
}

#[test]
fn a_machine_that_cannot_be_reached_is_named() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let check = |host: &str| {
        let engine =
            EngineSettings::Ssh(SshSettings { host: host.to_owned(), ..ssh_settings(&server) });
        Sandbox::remote(Ground::remote_settings(&dir, engine)).and_then(|sandbox| sandbox.check())
    };
    check("far").unwrap();
    let error = check("ssh://127.0.0.1:1").unwrap_err().to_string();
    assert!(error.starts_with("ssh://127.0.0.1:1 cannot be reached: "), "{error}");
    let error = check("-oProxyCommand=touch x").unwrap_err().to_string();
    assert!(error.contains("is not the name of a machine"), "{error}");
}
