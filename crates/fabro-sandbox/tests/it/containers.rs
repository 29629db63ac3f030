//! What scripts in containers see, and how containers end. Without an engine the tests are skipped, and say so.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use fabro_sandbox::{DockerSettings, EngineSettings, ExecError, Exit, Sandbox};

use crate::conformance::{FORK_BOMB, Ground, running, seconds, until};
use crate::server::image;

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
    assert_eq!(ground.output(FORK_BOMB).await, "True\nCode(0)");
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
