#[cfg(target_os = "linux")]
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
#[cfg(target_os = "linux")]
use std::process::Stdio;
use std::time::Duration;

use fabro_sandbox::{Exec, ExecError, Exit, FakeExec, LocalExec};
#[cfg(target_os = "linux")]
use fabro_sandbox::{Mark, end_leftovers, marks_ended, record_processes};

use crate::setup::{Place, all_gone, text};

/// Far from what any of these take, and from the time the scripts would run on their own.
const SOON: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_signal_is_no_code() {
    assert_eq!(Place::new().run("kill -9 $$").await.unwrap().exit, Exit::Signal(9));
    assert_eq!(Place::new().run("kill -SEGV $$").await.unwrap().exit, Exit::Signal(11));
}

#[tokio::test]
async fn closed_output_is_not_the_end() {
    let place = Place::new();
    let (finished, _) = tokio::join!(
        place.run("echo hi; exec >&- 2>&-; echo > ready; cat < /dev/null; exit 7"),
        place.ready()
    );
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Code(7), text("hi")));
}

#[tokio::test]
async fn the_stage_ends_with_its_shell() {
    let place = Place::new();
    let (finished, (_, pipe)) = tokio::join!(
        place.run("exec 3> ready; sleep 300 & echo >&3; echo hi; exit 3"),
        place.ready()
    );
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Code(3), text("hi")));
    all_gone(pipe).await;
    assert!(finished.duration < SOON);
}

#[tokio::test]
async fn what_is_left_is_asked_first() {
    let script = "(trap 'echo bye; exit' TERM; echo > set; while :; do sleep 0.01; done) & \
                  cat set; echo shell";
    let place = Place::new();
    assert!(Command::new("mkfifo").arg(place.path("set")).status().unwrap().success());
    let finished = place.run(script).await.unwrap();
    assert_eq!(finished.stdout, text("\nshell\nbye"));
}

#[tokio::test]
async fn a_filter_of_the_output_may_finish() {
    let finished = Place::new().run("exec > >(sed s/h/H/); echo hi").await.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Code(0), text("Hi")));
}

#[tokio::test]
async fn output_held_outside_the_group_is_not_waited_for() {
    let place = Place::new();
    let script = "setsid bash -c 'echo $$ > ready; exec sleep 300' & echo hi; cat < /dev/null";
    let (finished, (pid, _)) = tokio::join!(place.run(script), place.ready());
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Code(0), text("hi")));
    assert!(finished.duration < SOON);
    assert!(Command::new("kill").arg(pid).status().unwrap().success(), "it was left alone");
}

#[tokio::test]
async fn cancellation_ends_the_whole_group() {
    let place = Place::new();
    let script = "exec 3> ready; trap 'echo bye; exit 9' TERM; sleep 300 & echo >&3; wait";
    let canceling = async {
        let (_, pipe) = place.ready().await;
        place.cancel.cancel();
        all_gone(pipe).await;
    };
    let (finished, ()) = tokio::join!(place.run(script), canceling);
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Canceled, text("bye")));
    assert!(finished.duration < SOON);
}

// The clock stands still and jumps when nothing else can happen: the two seconds take no time.
#[tokio::test(start_paused = true)]
async fn a_deaf_group_is_killed() {
    let place = Place::new();
    let script = "exec 3> ready; trap '' TERM; sleep 300 & echo >&3; echo on; wait";
    let canceling = async {
        let (_, pipe) = place.ready().await;
        place.cancel.cancel();
        pipe
    };
    let (finished, pipe) = tokio::join!(place.run(script), canceling);
    assert_eq!(finished.unwrap().exit, Exit::Canceled);
    all_gone(pipe).await;
}

#[tokio::test]
async fn a_stopped_script_can_be_canceled() {
    let place = Place::new();
    let canceling = async {
        let (_, pipe) = place.ready().await;
        place.cancel.cancel();
        all_gone(pipe).await;
    };
    let (finished, ()) =
        tokio::join!(place.run("exec 3> ready; echo >&3; kill -STOP $$"), canceling);
    let finished = finished.unwrap();
    assert_eq!(finished.exit, Exit::Canceled);
    assert!(finished.duration < Duration::from_secs(2), "it needed no SIGKILL");
}

#[tokio::test]
async fn canceled_before_the_start_runs_nothing() {
    let place = Place::new();
    place.cancel.cancel();
    let finished = place.run("echo hi; touch made").await.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Canceled, text("")));
    assert!(!place.path("made").exists());
}

#[tokio::test]
async fn dropping_the_future_kills_the_group() {
    let place = Place::new();
    let script = "exec 3> ready; trap '' TERM; sleep 300 & echo >&3; wait";
    let pipe = tokio::select! {
        finished = place.run(script) => panic!("{finished:?}"),
        (_, pipe) = place.ready() => pipe,
    };
    all_gone(pipe).await;
}

#[tokio::test]
async fn a_full_disk_ends_the_script() {
    let place = Place::new();
    let mut request = place.request("exec 3> ready; echo >&3; sleep 300 & echo lost >&2; wait");
    request.keep = place.logs("stdout.log", "/dev/full");
    let exec = LocalExec::new();
    let (result, (_, pipe)) = tokio::join!(exec.run(request), place.ready());
    let error = result.unwrap_err();
    insta::assert_snapshot!(error, @"write /dev/full: No space left on device (os error 28); free some space or choose another place");
    assert!(matches!(error, ExecError::Log { .. }));
    all_gone(pipe).await;
}

#[test]
#[cfg(target_os = "linux")]
fn leftovers_are_found_by_their_marker() {
    let id = format!("test-{}", std::process::id());
    let start = |id: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", "echo; sleep 300 & wait"]).env("FABRO_RUN_ID", id);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child
    };
    let mut ours = start(&id);
    let mut other = start(&format!("{id}0"));
    assert_eq!(end_leftovers(("FABRO_RUN_ID", &id)), 1);
    assert_eq!(ours.wait().unwrap().signal(), Some(15));
    assert!(other.try_wait().unwrap().is_none(), "another run's are left alone");
    assert_eq!(end_leftovers(("FABRO_RUN_ID", &format!("{id}0"))), 1);
    other.wait().unwrap();
    assert_eq!(end_leftovers(("FABRO_RUN_ID", &id)), 0);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_is_marked_ends_with_its_mark() {
    let mark = Mark::new();
    let other = Mark::new();
    let leave = |mark: &Mark, deaf: &str| {
        let mut place = Place::new();
        place.env.push(mark.variable());
        let script =
            "setsid -f bash -c 'exec >&- 2>&-; exec 3> ready; DEAF sleep 300 & echo $$ >&3; wait'";
        (place, script.replace("DEAF", deaf))
    };
    let mut left = Vec::new();
    for (mark, deaf) in [(&mark, ""), (&mark, "trap \"\" TERM;"), (&other, "")] {
        let (place, script) = leave(mark, deaf);
        let (finished, ready) = tokio::join!(place.run(&script), place.ready());
        assert_eq!(finished.unwrap().exit, Exit::Code(0));
        left.push((place, ready));
    }
    drop(mark);
    let (_other, (pid, pipe)) = left.pop().unwrap();
    assert!(Command::new("kill").args(["-0", &pid]).status().unwrap().success(), "another's");
    for (_place, (_, pipe)) in left {
        all_gone(pipe).await;
    }
    drop(other);
    all_gone(pipe).await;
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_removed_its_mark_ends_with_it_too() {
    let escapes = [
        "env -i setsid -f /bin/bash -c 'exec >&- 2>&-; exec 3> ready; sleep 300 & echo $$ >&3; wait'",
        "unset FABRO_AGENT; setsid -f bash -c 'exec >&- 2>&-; exec 3> ready; trap \"\" TERM; (setsid sleep 300) & echo $$ >&3; wait'",
        "set -m; env -i bash -c 'exec >&- 2>&-; exec 3> ready; trap \"\" TERM; echo $$ >&3; while :; do sleep 1; done' & cat < /dev/null",
    ];
    let mark = Mark::new();
    let mut left = Vec::new();
    for script in escapes {
        let mut place = Place::new();
        place.env.push(mark.variable());
        let (finished, ready) = tokio::join!(place.run(script), place.ready());
        assert_eq!(finished.unwrap().exit, Exit::Code(0));
        left.push((place, ready));
    }
    // The author's script may leave a server.
    let mut place = Place::new();
    place.env.push(("FABRO_NODE".to_owned(), "serve".to_owned()));
    let serve = "setsid -f bash -c 'exec >&- 2>&-; exec 3> ready; echo $$ >&3; exec sleep 300'";
    let (_, (server, _)) = tokio::join!(place.run(serve), place.ready());
    drop(mark);
    marks_ended().await;
    for (_place, (_, pipe)) in left {
        all_gone(pipe).await;
    }
    assert!(Command::new("kill").arg(server).status().unwrap().success(), "it was left alone");
}

/// Each process starts the next one and ends, faster than `/proc` can be read.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn repeatedly_forking_processes_end_with_their_mark() {
    for (leaves_group, variable) in
        [("pass", "unset FABRO_AGENT;"), ("os.setsid()", ""), ("os.setsid()", "unset FABRO_AGENT;")]
    {
        let mark = Mark::new();
        let mut place = Place::new();
        place.env.push(mark.variable());
        let script = format!(
            "{variable} setsid -f python3 -c '
import os
for fd in (0, 1, 2): os.close(fd)
ready = os.open(\"ready\", os.O_WRONLY)
os.write(ready, b\"0\\n\")
while True:
    if os.fork(): os._exit(0)
    {leaves_group}
'"
        );
        let (finished, (_, pipe)) = tokio::join!(place.run(&script), place.ready());
        assert_eq!(finished.unwrap().exit, Exit::Code(0));
        drop(mark);
        marks_ended().await;
        all_gone(pipe).await;
    }
}

/// Any program can set the variable of scripts.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn an_agent_with_the_variable_of_scripts_ends_with_its_mark() {
    let own = "/bin/bash -c 'exec >&- 2>&-; exec 3> ready; echo $$ >&3; exec sleep 300'";
    for script in [
        format!("env -i FABRO_NODE=x setsid -f {own}"),
        // In a process group of its own, and in the session of this process, which is older than the agent.
        format!("set -m; (env -i FABRO_NODE=x {own} &)"),
    ] {
        let mark = Mark::new();
        let mut place = Place::new();
        place.env.push(mark.variable());
        let (finished, (_, pipe)) = tokio::join!(place.run(&script), place.ready());
        assert_eq!(finished.unwrap().exit, Exit::Code(0));
        drop(mark);
        marks_ended().await;
        all_gone(pipe).await;
    }
}

/// It can read the mark in the environment of the server.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn an_agent_with_the_mark_of_a_server_ends_with_its_own() {
    let server_mark = Mark::of_server();
    let mark = Mark::new();
    let mut server = Place::new();
    server.env.push(server_mark.variable());
    let mut place = Place::new();
    place.env.push(mark.variable());
    // The orphan of the server is in its group.
    let serve = "(sleep 300 & echo $! > orphan); exec 3> ready; echo $$ >&3; exec sleep 300";
    let serving = server.run(serve);
    tokio::pin!(serving);
    tokio::select! {
        finished = &mut serving => panic!("{finished:?}"),
        _ = server.ready() => {}
    }
    let (name, value) = server_mark.variable();
    let script = format!(
        "env -i {name}={value} setsid -f /bin/bash -c 'exec >&- 2>&-; exec 3> ready; echo $$ >&3; exec sleep 300'"
    );
    let (finished, (_, pipe)) = tokio::join!(place.run(&script), place.ready());
    assert_eq!(finished.unwrap().exit, Exit::Code(0));
    drop(mark);
    marks_ended().await;
    all_gone(pipe).await;
    let orphan = std::fs::read_to_string(server.path("orphan")).unwrap();
    assert!(Command::new("kill").args(["-0", orphan.trim()]).status().unwrap().success());
    server.cancel.cancel();
    assert_eq!(serving.await.unwrap().exit, Exit::Canceled);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn leftovers_are_found_by_their_record() {
    let mut place = Place::new();
    let id = "01TESTRECORDED";
    record_processes("FABRO_RUN_ID", place.directory.path());
    place.env.push(("FABRO_RUN_ID".to_owned(), id.to_owned()));
    let records = place.path(id).join("processes.txt");
    place.run("true").await.unwrap();
    assert_eq!(
        std::fs::read_to_string(&records).unwrap().trim(),
        "",
        "what has ended is not recorded"
    );
    // As a driver that was killed left it: the record, and a process without the variable.
    let script = "exec 3> ready; exec env -i sh -c 'trap \"\" TERM; sleep 300 & echo $$ >&3; wait'";
    let run = place.run(script);
    tokio::pin!(run);
    let (pid, pipe) = tokio::select! {
        finished = &mut run => panic!("{finished:?}"),
        ready = place.ready() => ready,
    };
    let record = std::fs::read_to_string(&records).unwrap();
    let (leader, identity) = record.split_once(' ').unwrap();
    assert_eq!(leader, pid);
    let (start, rest) = identity.split_once(' ').unwrap();
    // The id of another process, which started at another time, and before the system was started again.
    let later = format!("{pid} {} {rest}", start.parse::<u64>().unwrap() + 1);
    for other in [later, format!("{pid} {start} 1 another-boot"), "garbage".to_owned()] {
        std::fs::write(&records, other).unwrap();
        assert_eq!(end_leftovers(("FABRO_RUN_ID", id)), 0);
        assert!(!records.exists());
    }
    // Lines of others, and blank ones, are in it as well.
    std::fs::write(&records, format!("1 1 1 another-boot\n  \n{record}")).unwrap();
    let ended = tokio::task::spawn_blocking(move || end_leftovers(("FABRO_RUN_ID", id)));
    assert_eq!(ended.await.unwrap(), 1);
    all_gone(pipe).await;
    assert_eq!(run.await.unwrap().exit, Exit::Signal(9));
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_left_everything_is_found_by_its_control_group() {
    let mut place = Place::new();
    let id = "01TESTCGROUP";
    record_processes("FABRO_RUN_ID", place.directory.path());
    // A driver that is killed drops no mark.
    let mark = std::mem::ManuallyDrop::new(Mark::new());
    place.env.push(("FABRO_RUN_ID".to_owned(), id.to_owned()));
    place.env.push(mark.variable());
    let script = "env -i setsid -f /bin/bash -c 'exec >&- 2>&-; exec 3> ready; trap \"\" TERM; (setsid sleep 300) & echo $$ >&3; wait'";
    let (finished, (_, pipe)) = tokio::join!(place.run(script), place.ready());
    assert_eq!(finished.unwrap().exit, Exit::Code(0));
    let Ok(dirs) = std::fs::read_to_string(place.path(id).join("cgroups.txt")) else {
        eprintln!("skipped: no control group of version 2 can be created here");
        drop(std::mem::ManuallyDrop::into_inner(mark));
        return marks_ended().await;
    };
    let ended = tokio::task::spawn_blocking(move || end_leftovers(("FABRO_RUN_ID", id)));
    assert_eq!(ended.await.unwrap(), 2);
    all_gone(pipe).await;
    assert!(!std::path::Path::new(dirs.trim()).exists());
    assert!(!place.path(id).join("cgroups.txt").exists());
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_control_group_ends_with_its_mark() {
    let mut place = Place::new();
    let id = "01TESTCGROUPEND";
    record_processes("FABRO_RUN_ID", place.directory.path());
    let mark = Mark::new();
    // Whose orphans they are cannot be known by their parent while there is another mark.
    let _other = Mark::new();
    place.env.push(("FABRO_RUN_ID".to_owned(), id.to_owned()));
    place.env.push(mark.variable());
    let script =
        "env -i setsid -f /bin/bash -c 'exec >&- 2>&-; exec 3> ready; echo $$ >&3; exec sleep 300'";
    let (finished, (_, pipe)) = tokio::join!(place.run(script), place.ready());
    assert_eq!(finished.unwrap().exit, Exit::Code(0));
    let dirs = std::fs::read_to_string(place.path(id).join("cgroups.txt"));
    drop(mark);
    if let Ok(dir) = dirs {
        marks_ended().await;
        all_gone(pipe).await;
        assert!(!std::path::Path::new(dir.trim()).exists());
    } else {
        eprintln!("skipped: no control group of version 2 can be created here");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_own_group_is_no_leftover() {
    const MARKER: &str = "FABRO_SANDBOX_OWN_GROUP";
    if let Ok(value) = std::env::var(MARKER) {
        assert_eq!(end_leftovers((MARKER, &value)), 0);
        return;
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ends::the_own_group_is_no_leftover"])
        .env(MARKER, std::process::id().to_string())
        .process_group(0)
        .output()
        .unwrap();
    assert!(again.status.success(), "{again:?}");
}

#[tokio::test]
async fn a_fake_says_what_it_was_told() {
    let place = Place::new();
    let exec = FakeExec::new().with("test", Exit::Code(1), "1 failed").with_endless("serve");
    let finished = exec.run(place.request("test")).await.unwrap();
    assert_eq!((finished.exit, finished.stdout), (Exit::Code(1), text("1 failed")));
    assert_eq!(exec.run(place.request("else")).await.unwrap().exit, Exit::Code(127));
    let (finished, ()) =
        tokio::join!(exec.run(place.request("serve")), async { place.cancel.cancel() });
    assert_eq!(finished.unwrap().exit, Exit::Canceled);
    assert_eq!(exec.ran(), ["test", "else", "serve"]);
}
