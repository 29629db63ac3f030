//! What a bubblewrap sandbox shows and hides.

use fabro_sandbox::{Captured, Language};

use crate::conformance::{FORK_BOMB, Ground};

#[tokio::test]
async fn files_outside_of_the_working_directory_are_not_changed() {
    let Some(ground) = Ground::bwrap() else { return };
    let outside = ground.path("outside");
    for (script, expected) in [
        ("echo x > /etc/fabro-test", "Read-only file system"),
        ("echo x > /usr/fabro-test", "Read-only file system"),
        ("echo x > .git/hooks/pre-commit", "Read-only file system"),
        ("echo x > .fabro/config.toml", "Read-only file system"),
        ("mv .git .git2", "busy"),
        ("mv .fabro .fabro2", "busy"),
        ("mount -o remount,rw / / || echo no", "no"),
        ("umount .git || echo no", "no"),
    ] {
        let output = ground.output(script).await;
        assert!(output.contains(expected), "{script}: {output}");
    }
    // Its directory is private, because it is below /tmp.
    let output = ground.output(&format!("echo x > {}; echo done", outside.display())).await;
    assert_eq!(output, "done\nCode(0)");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "visible");
}

#[tokio::test]
async fn settings_of_the_kernel_are_not_changed() {
    let Some(ground) = Ground::bwrap() else { return };
    // Root owns them. The value stays what it is if this fails.
    let script = "cat /proc/sys/kernel/core_pattern > value; \
                  cat value > /proc/sys/kernel/core_pattern && echo written; \
                  find /proc /sys -writable -type f -not -path '/proc/[1-9]*' \
                  -not -path '/proc/self/*' -not -path '/proc/thread-self/*' 2>/dev/null; true";
    let finished = ground.run(script).await;
    assert_eq!(finished.stdout, Captured::Text(String::new()));
}

#[tokio::test]
async fn the_home_directory_and_the_store_are_hidden() {
    let Some(ground) = Ground::bwrap() else { return };
    let dir = ground.dir.path().display();
    let script = format!(
        "cat {dir}/home/.ssh/id; cat {dir}/store/fabro.db; cat {dir}/home/.cargo/credentials.toml; \
         cat {dir}/home/.cargo/bin/tool; echo; ls -A /root /home /run /mnt; cat /etc/shadow; echo"
    );
    let output = ground.output(&script).await;
    for hidden in ["key", "events", "token"] {
        assert!(!output.lines().any(|line| line == hidden), "{output}");
    }
    assert!(output.lines().any(|line| line == "tool"), "{output}");
    assert!(!output.contains("\nroot:"), "{output}");
    // What the stage may read of the store.
    let reads = [ground.path("store/runs/1")];
    let script =
        format!("cat {dir}/store/runs/1/blob; ls {dir}/store; echo > {dir}/store/runs/1/x");
    let finished = ground.run_in(&ground.path("work"), &script, Language::Shell, &reads).await;
    assert_eq!(finished.stdout, Captured::Text("valueruns".to_owned()));
    assert!(!ground.path("store/runs/1/x").exists());
}

#[tokio::test]
async fn a_working_directory_that_contains_home_and_store_shows_neither() {
    let home = |ground: &Ground| ground.path("home");
    let changed = Ground::bwrap_with(|settings| {
        let home = settings.home.clone().unwrap();
        std::fs::create_dir_all(home.join("sub/state/runs")).unwrap();
        std::fs::write(home.join("sub/state/fabro.db"), "events").unwrap();
        settings.hidden = vec![home.join("sub/state")];
        settings.work_dir = home;
    });
    let Some(ground) = changed else { return };
    let script = "cat .ssh/id sub/state/fabro.db .cargo/credentials.toml; mv sub other; \
                  mv .cargo c; echo made > file";
    let finished = ground.run_in(&home(&ground), script, Language::Shell, &[]).await;
    assert_eq!(finished.stdout, Captured::Text(String::new()));
    assert_eq!(std::fs::read_to_string(home(&ground).join("file")).unwrap(), "made\n");
    assert!(home(&ground).join("sub/state/fabro.db").exists());
}

#[tokio::test]
async fn files_in_tmp_are_private_and_stay_for_the_next_script() {
    let Some(ground) = Ground::bwrap() else { return };
    let name = format!("fabro-test-{}", std::process::id());
    std::fs::write(std::env::temp_dir().join(&name), "of the machine").unwrap();
    let script = format!("cat /tmp/{name}; echo mine > /tmp/{name}; echo v > /var/tmp/x");
    ground.output(&script).await;
    let output = ground.output(&format!("cat /tmp/{name} /var/tmp/x")).await;
    assert_eq!(output, "mine\nv\nCode(0)");
    let outside = std::env::temp_dir().join(&name);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "of the machine");
    std::fs::remove_file(outside).unwrap();
}

#[tokio::test]
async fn a_tmp_of_limited_size_is_full_at_its_limit() {
    let limited = Ground::bwrap_with(|settings| settings.tmp_size = Some(1 << 20));
    let Some(ground) = limited else { return };
    let script = "head -c 2000000 /dev/zero > /tmp/x; stat -c %s /tmp/x";
    let output = ground.output(script).await;
    assert!(output.contains("No space left") && output.contains("1048576"), "{output}");
    assert_eq!(ground.output("ls /tmp/x || echo gone").await.lines().nth(1), Some("gone"));
}

#[tokio::test]
async fn there_is_no_network_unless_it_is_allowed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("(: > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || echo closed");
    for (network, expected) in [(false, "closed\nCode(0)"), (true, "open\nCode(0)")] {
        let Some(ground) = Ground::bwrap_with(|it| it.network = network) else { return };
        assert_eq!(ground.output(&script).await, expected);
    }
}

#[tokio::test]
async fn other_processes_and_the_terminal_are_out_of_reach() {
    let Some(ground) = Ground::bwrap() else { return };
    let own = std::process::id();
    let script = format!(
        "test -e /proc/{own}/environ && grep -q CARGO /proc/{own}/environ && echo seen; \
         cat /proc/*/environ | tr '\\0' '\\n' | grep -c ^CARGO_PKG_NAME; \
         kill -9 {own} 2>/dev/null && echo killed; cat /dev/tty; grep CapBnd /proc/self/status"
    );
    insta::assert_snapshot!(ground.output(&script).await.replace('\t', " "), @r"
    0
    CapBnd: 0000000000000000
    Code(0)
    ");
}

#[tokio::test]
async fn a_fork_bomb_reaches_the_limit_and_ends_with_its_script() {
    let Some(ground) = Ground::bwrap_with(|it| it.max_processes = 40) else { return };
    assert_eq!(ground.output(FORK_BOMB).await, "True\nCode(0)");
    assert_eq!(ground.output("echo next").await, "next\nCode(0)");
}

/// Also one that is not that of this run.
#[tokio::test]
async fn a_store_in_the_working_directory_is_not_seen() {
    let mut other = std::path::PathBuf::new();
    let ground = Ground::bwrap_with(|settings| {
        other = settings.work_dir.join("sub/other");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("fabro.db"), "events").unwrap();
    });
    let Some(ground) = ground else { return };
    let script = "ls -A sub/other; cat sub/other/fabro.db; mv sub sub2; rm -rf sub; touch sub/other/x; echo y > sub/new; ls -A sub";
    let output = ground.output(script).await;
    assert!(!output.contains("events") && output.ends_with("new\nother\nCode(0)"), "{output}");
    assert_eq!(std::fs::read_to_string(other.join("fabro.db")).unwrap(), "events");
    assert!(!other.join("x").exists() && ground.path("work/sub/new").exists());
}
