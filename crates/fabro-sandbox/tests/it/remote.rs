//! What scripts in containers and on other machines see, and what comes back. A test whose engine or program is not
//! there is skipped, and says so.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fabro_sandbox::{
    Captured, DockerSettings, EngineSettings, ExecError, Files as _, InSandbox, Language,
    LocalExec, LocalFiles, Sandbox, WithValues,
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

/// The engine kills the container in the middle of a script: it is lost, and there again for the next one.
#[tokio::test]
async fn a_container_that_was_killed_is_started_again() {
    for copy in [false, true] {
        let Some(ground) = Ground::docker_with(copy, |_| {}).await else { return };
        let name = format!("fabro-{}", ground.settings.as_ref().unwrap().run.to_lowercase());
        let (finished, ()) =
            tokio::join!(ground.try_run("echo 1 > /tmp/x; echo up; sleep 600"), async {
                ground.printed("up").await;
                assert!(
                    Command::new("docker")
                        .args(["kill", &name])
                        .stdout(Stdio::null())
                        .status()
                        .unwrap()
                        .success()
                );
            });
        assert!(matches!(finished, Err(ExecError::Lost { .. })), "{finished:?}");
        assert!(fabro_sandbox::is_exhausted(&finished.unwrap_err()), "it can work later");
        assert_eq!(ground.output("cat /tmp/x; echo y > made").await, "1\nCode(0)");
        assert_eq!(std::fs::read_to_string(ground.path("work/made")).unwrap(), "y\n");
    }
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

/// Also one that is not that of this run.
#[tokio::test]
async fn a_store_in_the_working_directory_is_not_seen() {
    let store = |work: &std::path::Path| {
        let other = work.join("sub/other");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("fabro.db"), "events").unwrap();
    };
    let Some(ground) = Ground::docker_with(false, |it| store(&it.work_dir)).await else { return };
    let script = "ls -A sub/other; cat sub/other/fabro.db; mv sub sub2; rm -rf sub; touch sub/other/x; echo y > sub/new; ls -A sub";
    let output = ground.output(script).await;
    assert!(!output.contains("events") && output.ends_with("new\nother\nCode(0)"), "{output}");
    let other = ground.path("work/sub/other");
    assert_eq!(std::fs::read_to_string(other.join("fabro.db")).unwrap(), "events");
    assert!(!other.join("x").exists() && ground.path("work/sub/new").exists());
    assert_eq!(ground.sandbox.as_ref().unwrap().hidden_in(&ground.path("work")).len(), 2);
}

/// What a script in a container can do to the machine, with the working directory mounted.
#[tokio::test]
async fn a_mounted_container_shows_the_working_directory_and_not_the_machine() {
    let Some(ground) = Ground::docker_with(false, |_| {}).await else { return };
    std::fs::write(ground.path("work/.git/HEAD"), "ref").unwrap();
    let dir = ground.dir.path().display();
    for (script, expected) in [
        (format!("cat {dir}/home/.ssh/id"), "No such file"),
        (format!("cat {dir}/store/fabro.db"), "No such file"),
        ("cat .fabro/state/fabro.db".to_owned(), "No such file"),
        ("echo x > .fabro/config.toml".to_owned(), "Read-only file system"),
        ("echo x > .git/hooks/pre-commit".to_owned(), "Read-only file system"),
        ("mv .git .git2".to_owned(), "busy"),
        ("mv .fabro .fabro2".to_owned(), "busy"),
        ("ls /run/docker.sock /var/run/docker.sock".to_owned(), "No such file"),
        ("mount -t tmpfs x /mnt".to_owned(), "ount"),
        ("chown 12345 made; touch made; chown 12345 made".to_owned(), "not permitted"),
        ("cat .fabro/config.toml; grep CapBnd /proc/self/status".to_owned(), "_version = 1CapBnd:\t0000000000000000"),
        ("grep NoNewPrivs /proc/self/status; cat /proc/1/environ | tr '\\0' '\\n' | grep -c CARGO".to_owned(), "NoNewPrivs:\t1\n0"),
        ("cat /sys/class/net/*/operstate; ls /sys/class/net".to_owned(), "lo"),
        ("(: > /dev/tcp/127.0.0.1/22) 2>&1 || echo closed".to_owned(), "closed"),
        (format!("kill -9 {}; test -d /proc/{0}/root && echo seen; echo end", std::process::id()), "end"),
    ] {
        let output = ground.output(&script).await;
        assert!(output.contains(expected), "{script}: {output}");
    }
    let output = ground.output("ls /sys/class/net; hostname").await;
    assert_eq!(output, "lo\nfabro\nCode(0)");
    // The files that it makes are the user's.
    ground.output("echo x > owned").await;
    let found = std::fs::metadata(ground.path("work/owned")).unwrap();
    let user = std::fs::metadata(ground.path("outside")).unwrap();
    assert_eq!((found.uid(), found.gid()), (user.uid(), user.gid()));
}

#[tokio::test]
async fn a_container_is_held_to_its_limits() {
    let limited = Ground::docker_with(true, |settings| {
        let EngineSettings::Docker(docker) = &mut settings.engine else { unreachable!() };
        docker.memory = Some(64 << 20);
        docker.cpus = Some(0.5);
        docker.max_processes = 40;
        docker.tmp_size = Some(1 << 20);
    });
    let Some(ground) = limited.await else { return };
    let output =
        ground.output("head -c 2000000 /dev/zero > /tmp/x; wc -c < /tmp/x; rm /tmp/x").await;
    let written: u64 = output.lines().rev().nth(1).unwrap().parse().unwrap();
    assert!(written <= 1 << 20, "{output}");
    // A shell would try again, and wait longer each time.
    let script = "python3 -c '
import os, time
for started in range(100):
    try:
        if os.fork() == 0: time.sleep(600)
    except OSError:
        print(20 < started < 40)
        break
'";
    assert_eq!(ground.output(script).await, "True\nCode(0)");
    assert_eq!(ground.output("echo next").await, "next\nCode(0)");
    let finished = ground.run("python3 -c 'x = bytearray(200_000_000)'").await;
    assert_eq!(finished.exit, Exit::Code(137));
    assert_eq!(ground.output("echo next").await, "next\nCode(0)");
}

/// It leaves no process for the programs that would end it.
#[tokio::test]
async fn a_container_is_used_again_after_a_fork_bomb() {
    for copy in [false, true] {
        let few = |settings: &mut fabro_sandbox::RemoteSettings| {
            let EngineSettings::Docker(docker) = &mut settings.engine else { unreachable!() };
            docker.max_processes = 60;
        };
        let Some(ground) = Ground::docker_with(copy, few).await else { return };
        std::fs::write(ground.path("work/here"), "x").unwrap();
        let bomb = "b() { b | b & }; b; sleep 1; echo bombed";
        let finished = ground.try_run(bomb).await;
        assert!(matches!(finished, Ok(_) | Err(ExecError::Lost { .. })), "{finished:?}");
        assert_eq!(ground.output("cat here; echo y > made").await, "x\nCode(0)");
        assert!(ground.path("work/made").exists());
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

/// The same of a container, which may also have been removed.
#[tokio::test]
async fn a_container_that_stopped_between_two_scripts_is_started_again() {
    for copy in [true, false] {
        let Some(ground) = Ground::docker_with(copy, |_| {}).await else { return };
        assert_eq!(ground.output("echo one > one").await, "\nCode(0)");
        let name = format!("fabro-{}", ground.settings.as_ref().unwrap().run.to_lowercase());
        for how in [&["kill"][..], &["rm", "-f"]] {
            let mut docker = Command::new("docker");
            docker.args(how).arg(&name).stdout(Stdio::null());
            assert!(docker.status().unwrap().success());
            // One that was used just now is not looked at before a script.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            std::fs::write(ground.path("work/two"), "2").unwrap();
            assert_eq!(ground.output("cat one two").await, "one\n2\nCode(0)", "{copy} {how:?}");
        }
    }
}

/// What leaves its session and clears its environment ends with its script, as far as no other script runs.
#[tokio::test]
async fn nothing_in_a_container_outlives_its_script() {
    let Some(ground) = Ground::docker_with(false, |_| {}).await else { return };
    let seconds = seconds();
    let script =
        format!("env -i /bin/setsid /bin/sleep {seconds} & sleep 0.1; kill -9 $PPID; sleep 60");
    let finished = ground.run(&script).await;
    assert_eq!(finished.exit, Exit::Code(137));
    until("all have ended", || running(&seconds) == 0).await;
    let other = ground.run("sleep 1; echo other");
    let (finished, other) =
        tokio::join!(ground.run("setsid sleep 600 & sleep 0.1; echo one"), other);
    assert_eq!((finished.exit, other.exit), (Exit::Code(0), Exit::Code(0)));
}

/// It is no leftover of a script that ends beside it.
#[tokio::test]
async fn the_shell_of_a_person_outlives_scripts() {
    let Some(ground) = Ground::docker_with(false, |_| {}).await else { return };
    let seconds = seconds();
    let sandbox = ground.sandbox.as_ref().unwrap();
    let args = ["-c".to_owned(), format!("echo up; sleep {seconds}; echo end")];
    let mut shell = sandbox.interactive(&ground.path("work"), &[], &args, false).unwrap();
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    until("it runs", || running(&format!("sleep\0{seconds}")) == 1).await;
    let script = "env -i /bin/setsid /bin/sleep 600 & sleep 0.1; echo ran";
    assert_eq!(ground.output(script).await, "ran\nCode(0)");
    assert_eq!(running(&format!("sleep\0{seconds}")), 1);
    assert!(shell.try_wait().unwrap().is_none());
    shell.kill().unwrap();
    shell.wait().unwrap();
}

#[test]
fn an_image_that_is_not_there_is_named() {
    if image().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let check = |image: &str| {
        let engine = EngineSettings::Docker(DockerSettings {
            image: image.to_owned(),
            memory: None,
            cpus: None,
            max_processes: 100,
            network: false,
            tmp_size: None,
            copy: false,
            read: Vec::new(),
            write: Vec::new(),
        });
        let settings = Ground::remote_settings(&dir, engine);
        Sandbox::remote(settings).unwrap().check()
    };
    check(image().unwrap()).unwrap();
    let error = check("localhost:1/no-such-image:1").unwrap_err();
    assert!(
        error.to_string().starts_with("there is no image `localhost:1/no-such-image:1`: "),
        "{error}"
    );
    assert!(error.fix().contains("run.sandbox.image"));
    assert_eq!(
        std::fs::read_dir(dir.path().join("work")).unwrap().count(),
        0,
        "a check leaves nothing"
    );
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

/// The image of the tests with a user who is not root.
fn image_of_user() -> Option<String> {
    let name = format!("{}-user", image()?);
    let docker = |args: &[&str]| {
        let output = Command::new("docker").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let container = docker(&["create", image()?, "true"]);
    docker(&["commit", "--change", "USER 1234:1234", &container, &name]);
    docker(&["rm", &container]);
    Some(name)
}

#[tokio::test]
async fn modes_are_copied_for_a_user_who_is_not_root() {
    let Some(image) = image_of_user() else { return };
    let as_user = |settings: &mut fabro_sandbox::RemoteSettings| {
        if let EngineSettings::Docker(docker) = &mut settings.engine {
            docker.image = image;
        }
    };
    let Some(ground) = Ground::docker_with(true, as_user).await else { return };
    let work = ground.path("work");
    let write = |name: &str, text: &str, mode: u32| {
        let path = work.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |name: &str| {
        std::fs::symlink_metadata(work.join(name)).unwrap().permissions().mode() & 0o777
    };
    write("own", "own\n", 0o600);
    write("run.sh", "echo ran\n", 0o755);
    write("plain.sh", "echo never\n", 0o644);
    write("ro/x", "x\n", 0o444);
    let script = "id -u; cat own; ./run.sh; ./plain.sh 2>/dev/null || echo refused; \
        { echo y >> ro/x; } 2>/dev/null || echo kept; echo 1 > made; chmod 640 made; \
        mkdir d; echo 2 > d/f; chmod 440 d/f; chmod 750 d; chmod 600 run.sh; chmod 755 plain.sh";
    assert_eq!(ground.output(script).await, "1234\nown\nran\nrefused\nkept\nCode(0)");
    let modes = ["own", "run.sh", "plain.sh", "ro/x", "made", "d", "d/f"].map(mode);
    let expect = [0o600, 0o600, 0o755, 0o444, 0o640, 0o750, 0o440];
    assert_eq!(modes.map(|it| format!("{it:o}")), expect.map(|it| format!("{it:o}")));
    // And the other way, of a file that was copied before.
    std::fs::set_permissions(work.join("plain.sh"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    let script = "./plain.sh 2>/dev/null || echo refused; chmod 644 ro/x; echo y > ro/x";
    assert_eq!(ground.output(script).await, "refused\nCode(0)");
    assert_eq!(
        (std::fs::read_to_string(work.join("ro/x")).unwrap(), mode("ro/x")),
        ("y\n".into(), 0o644)
    );
}
