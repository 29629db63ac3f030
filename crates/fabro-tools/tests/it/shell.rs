use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabro_redact::Redactor;
use fabro_sandbox::{LocalExec, agent_env};
use fabro_tools::Shell;
use insta::assert_snapshot;
use serde_json::json;

use crate::setup::{Agent, Place};

/// Far from what any of these take, and from what the commands would take by themselves.
const SOON: Duration = Duration::from_mins(1);

fn agent(place: &Place) -> Agent {
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
    let planted = [("OPENAI_API_KEY", "sk-planted"), ("AWS_SESSION_TOKEN", "planted")].map(own);
    let shell = Shell {
        exec: Arc::new(LocalExec::new()),
        files: Arc::new(place.files()),
        root: place.work(""),
        env: agent_env([path].into_iter().chain(planted), [("GREETING", "hello")].map(own)),
        reads: Vec::new(),
        redactor: Redactor::new([("PASSWORD", "correct horse battery")]),
    };
    Agent::new([shell.into_tool()])
}

/// A pipe in the working directory. What is written into it comes back, and its end when all that
/// had it open are gone.
async fn pipe(place: &Place) -> (String, std::fs::File) {
    let path = place.work("pipe");
    tokio::task::spawn_blocking(move || {
        let mut pipe = std::fs::File::open(path).unwrap();
        let mut byte = [0];
        let mut line = String::new();
        while pipe.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.push(char::from(byte[0]));
        }
        (line, pipe)
    })
    .await
    .unwrap()
}

async fn all_gone(mut pipe: std::fs::File) {
    tokio::task::spawn_blocking(move || pipe.read_to_end(&mut Vec::new()).unwrap()).await.unwrap();
}

fn make_pipe(place: &Place) {
    assert!(Command::new("mkfifo").arg(place.work("pipe")).status().unwrap().success());
}

#[tokio::test]
async fn output_and_exit() {
    let place = Place::new();
    std::fs::create_dir(place.work("sub")).unwrap();
    let agent = agent(&place);
    let run = |command: &str| json!({ "command": command });
    assert_snapshot!(agent.ok("shell", run("cat a.txt; echo err >&2; echo $GREETING")).await, @r"
    inside
    err
    hello
    ");
    assert_snapshot!(agent.ok("shell", run("true")).await, @"[no output]");
    assert_snapshot!(agent.fails("shell", run("echo no; exit 3")).await, @r"
    no
    [exit code 3]
    ");
    assert_snapshot!(agent.fails("shell", run("kill -9 $$")).await, @"[killed by signal 9]");
    assert_snapshot!(agent.ok("shell", run("printf 'a\\xff\\x00b'")).await.escape_debug(), @r"a�\0b");
    assert_eq!(agent.ok("shell", run("echo correct horse battery")).await, "[redacted:PASSWORD]");
    assert_eq!(agent.ok("shell", run("read x; echo \"[$x]\"")).await, "[]", "there is no input");
    let sub = agent.ok("shell", json!({"command": "pwd", "cwd": "sub"})).await;
    assert!(sub.ends_with("/work/sub"), "{sub}");
    assert_snapshot!(agent.fails("shell", json!({"command": "pwd", "cwd": ".."})).await, @".. is outside of the working directory: use a path inside of it");
    assert_snapshot!(agent.fails("shell", json!({"command": "pwd", "cwd": "a.txt"})).await, @"a.txt is not a directory: choose another cwd");
    assert_snapshot!(agent.fails("shell", json!({"command": "a\0b"})).await, @"script contains a NUL character at byte 1: remove it");
    assert_snapshot!(agent.fails("shell", json!({"command": "true", "timeout": 120_000})).await, @"the arguments of `shell` are not valid: /timeout: value is greater than the maximum of 600. Call it again.");
}

#[tokio::test]
async fn the_environment_is_the_given_one() {
    let place = Place::new();
    let text = agent(&place).ok("shell", json!({"command": "env"})).await;
    assert!(text.contains("GREETING=hello") && text.contains("PATH="), "{text}");
    assert!(!text.contains("planted") && !text.contains("CARGO_MANIFEST_DIR"), "{text}");
}

#[tokio::test]
async fn a_flood_keeps_its_ends() {
    let place = Place::new();
    let started = Instant::now();
    let command =
        "echo start; head -c 50000000 /dev/zero | tr '\\0' 'x' | fold -w 1000; echo; echo end";
    let text = agent(&place).ok("shell", json!({ "command": command })).await;
    assert!(text.starts_with("start\nxxx") && text.ends_with("x\nend"), "{}", text.len());
    assert_eq!(text.matches("characters omitted").count(), 1);
    assert!(text.chars().count() < 31_000 && started.elapsed() < SOON);
}

#[tokio::test]
async fn a_secret_across_the_cut_is_not_seen() {
    let place = Place::new();
    let agent = agent(&place);
    for padding in (19_770..19_810).step_by(5) {
        let command = format!(
            "head -c {padding} /dev/zero | tr '\\0' x; echo correct horse battery; yes | head -c 99999"
        );
        let text = agent.ok("shell", json!({ "command": command })).await;
        assert!(!text.contains("correct") && !text.contains("horse"), "{padding}");
    }
}

#[tokio::test]
async fn a_command_that_hangs_is_ended() {
    let place = Place::new();
    make_pipe(&place);
    let agent = agent(&place);
    let command = "exec 3> pipe; trap '' TERM; echo on; echo >&3; sleep 300 & wait";
    let started = Instant::now();
    let (text, (_, pipe)) =
        tokio::join!(agent.fails("shell", json!({"command": command, "timeout": 1})), pipe(&place));
    assert_snapshot!(text, @r"
    on
    [ended after 1 seconds: raise timeout (up to 600), or do less at once]
    ");
    all_gone(pipe).await;
    assert!(started.elapsed() < SOON);
}

#[tokio::test]
async fn canceling_and_dropping_end_everything() {
    let place = Place::new();
    make_pipe(&place);
    let command = json!({"command": "exec 3> pipe; echo >&3; sleep 300 & sleep 300 & wait"});
    let agent = agent(&place);
    let dropped = tokio::select! {
        output = agent.run("shell", command.clone()) => panic!("{output:?}"),
        (_, pipe) = pipe(&place) => pipe,
    };
    all_gone(dropped).await;
    let canceling = async {
        let (_, pipe) = pipe(&place).await;
        agent.cancel.cancel();
        all_gone(pipe).await;
    };
    let (text, ()) = tokio::join!(agent.fails("shell", command), canceling);
    assert_eq!(text, "the call was canceled");
}

#[tokio::test]
async fn what_is_left_running_is_ended() {
    let place = Place::new();
    make_pipe(&place);
    let agent = agent(&place);
    let command = json!({"command": "exec 3> pipe; sleep 300 & echo >&3; echo done"});
    let (text, (_, pipe)) = tokio::join!(agent.ok("shell", command), pipe(&place));
    assert_eq!(text, "done");
    all_gone(pipe).await;
}
