use std::path::{Path, PathBuf};

use fabro_external_agents::{Acp, Backend, Session, Task};
use fabro_types::{Permissions, Usage};
use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Place, gone};

/// The example `fake_agent`, which `cargo test` builds beside this test.
fn agent(start: &str, config: &Value) -> Acp {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let path: PathBuf = target.join("examples/fake_agent");
    assert!(path.is_file(), "build it: cargo build -p fabro-external-agents --examples");
    Acp::new(&format!("'{}' {start}", path.display()), config).unwrap()
}

async fn answer(prompt: &str, permissions: Permissions) -> String {
    let place = Place::new();
    std::fs::write(place.work().join("here.txt"), "one\ntwo\n").unwrap();
    place.run(&agent("", &Value::Null), prompt, |task| task.permissions = permissions).await
}

#[tokio::test]
async fn a_conversation_is_held() {
    assert_snapshot!(answer("say hello", Permissions::ReadOnly).await, @r"
    says You 
    says said:
    uses Thinking about it
    says say hello
    answer: You said:

    say hello
    session: s1
    ");
    let long = "x".repeat(1_000_000);
    assert_snapshot!(answer(&long, Permissions::ReadOnly).await, @r"
    says 1000000
    answer: 1000000
    session: s1
    ");
}

#[tokio::test]
async fn permissions_are_given_as_the_task_has_them() {
    let mut lines = Vec::new();
    for permissions in [Permissions::ReadOnly, Permissions::ReadWrite, Permissions::Full] {
        for what in [
            "read here.txt",
            "read /etc/passwd",
            "edit here.txt",
            "edit ../x",
            "delete a",
            "execute a",
            "fetch a",
            "other a",
        ] {
            let said = answer(&format!("permit {what}"), permissions).await;
            let said =
                said.lines().find_map(|line| line.strip_prefix("answer: ")).unwrap().to_owned();
            lines.push(format!("{} {what}: {said}", permissions.as_str()));
        }
    }
    assert_snapshot!(lines.join("\n"), @r"
    read-only read here.txt: once
    read-only read /etc/passwd: no
    read-only edit here.txt: no
    read-only edit ../x: no
    read-only delete a: no
    read-only execute a: no
    read-only fetch a: no
    read-only other a: no
    read-write read here.txt: once
    read-write read /etc/passwd: no
    read-write edit here.txt: once
    read-write edit ../x: no
    read-write delete a: once
    read-write execute a: no
    read-write fetch a: no
    read-write other a: no
    full read here.txt: once
    full read /etc/passwd: once
    full edit here.txt: once
    full edit ../x: once
    full delete a: once
    full execute a: once
    full fetch a: once
    full other a: once
    ");
    assert_snapshot!(answer("permit execute a", Permissions::ReadWrite).await, @r"
    says no
    answer: no
    session: s1
    warning: the agent may not use execute a with the permissions read-write: raise them to allow it
    ");
}

#[tokio::test]
async fn files_are_read_and_written_inside_of_the_working_directory() {
    assert_snapshot!(answer("read here.txt", Permissions::ReadOnly).await, @r"
    says one
    two

    answer: one
    two
    session: s1
    ");
    assert_snapshot!(answer("read ../logs/stdout.log", Permissions::Full).await, @r"
    says ../logs/stdout.log is outside of the working directory: use a path inside of it
    answer: ../logs/stdout.log is outside of the working directory: use a path inside of it
    session: s1
    ");
    assert_snapshot!(answer("read /etc/passwd", Permissions::Full).await, @r"
    says /etc/passwd is outside of the working directory: use a path inside of it
    answer: /etc/passwd is outside of the working directory: use a path inside of it
    session: s1
    ");
    assert_snapshot!(answer("read .", Permissions::Full).await, @r"
    says . is a directory: name a file
    answer: . is a directory: name a file
    session: s1
    ");
    assert_snapshot!(answer("write new/a.txt hi", Permissions::ReadOnly).await, @r"
    says writing needs the permissions read-write
    answer: writing needs the permissions read-write
    session: s1
    warning: the agent may not write files with the permissions read-only: raise them to allow it
    ");
    assert_snapshot!(answer("write new/a.txt hi", Permissions::ReadWrite).await, @r"
    says writte
    says n
    answer: written
    session: s1
    ");
    assert_snapshot!(answer("write .git/config hi", Permissions::ReadWrite).await, @r"
    says .git/config controls git, fabro or later agents: it can be read, but not changed here
    answer: .git/config controls git, fabro or later agents: it can be read, but not changed here
    session: s1
    ");
    assert_snapshot!(answer("write ../a.txt hi", Permissions::Full).await, @r"
    says ../a.txt is outside of the working directory: use a path inside of it
    answer: ../a.txt is outside of the working directory: use a path inside of it
    session: s1
    ");
}

#[tokio::test]
async fn ends_have_reasons_and_classes() {
    assert_snapshot!(answer("max", Permissions::Full).await, @r"
    says 3
    error: fake_agent: it reached its limit of tokens (budget_exhausted)
    ");
    assert_snapshot!(answer("refuse", Permissions::Full).await, @r"
    says 6
    error: fake_agent: it refused to continue: change the prompt (deterministic)
    ");
    assert_snapshot!(answer("fail", Permissions::Full).await, @"error: fake_agent: Internal error: come back later (transient_infra, unavailable)");
    let place = Place::new();
    let redactor = fabro_redact::Redactor::new([("KEY", "come back")]);
    let said = place.run(&agent("", &Value::Null), "fail", |task| task.redactor = redactor).await;
    assert_snapshot!(said, @"error: fake_agent: Internal error: [redacted:KEY] later (transient_infra, unavailable)");
    assert_snapshot!(answer("die", Permissions::Full).await, @r"
    error: fake_agent failed with exit code 7; it said:
    out of memory (deterministic)
    ");
    let place = Place::new();
    assert_snapshot!(place.run(&agent("broken", &Value::Null), "", |_| {}).await, @r"
    error: fake_agent failed with exit code 9; it said:
    cannot find my settings (deterministic, unavailable)
    ");
    assert_snapshot!(place.run(&agent("login", &Value::Null), "", |_| {}).await, @"error: fake_agent: it needs a login: start it once by hand and log in, or set its key in acp.config's env (deterministic, unavailable)");
    let missing = Acp::new("no-such-agent --acp", &Value::Null).unwrap();
    assert_snapshot!(place.run(&missing, "", |_| {}).await, @"error: no-such-agent not found: install it, or correct `acp.command` (deterministic, unavailable)");
    let mute = Acp::new("sh -c 'exec >&-; exec sleep 600'", &Value::Null).unwrap();
    assert_snapshot!(place.run(&mute, "", |_| {}).await, @"error: sh: it closed its stdout before it answered (deterministic, unavailable)");
}

async fn set(start: &str, config: Value, model: Option<&'static str>) -> String {
    let place = Place::new();
    place.run(&agent(start, &config), "set", |task| task.model = model).await
}

#[tokio::test]
async fn settings_reach_the_agent() {
    let all = json!({"mode": "code", "model": "big", "fast": true});
    assert_snapshot!(set("", all, Some("unused")).await, @r#"
    says mode=code which-model="big" fast=true
    answer: mode=code which-model="big" fast=true
    session: s1
    "#);
    assert_snapshot!(set("", Value::Null, Some("big")).await, @r#"
    says which-model="big"
    answer: which-model="big"
    session: s1
    "#);
    assert_snapshot!(set("plain", Value::Null, Some("big")).await, @r"
    says 
    answer: 
    session: s1
    warning: the model big is not set, the agent uses its own: fake_agent: Method not found: session/set_model
    ");
    assert_snapshot!(set("plain", json!({"model": "big"}), None).await, @"error: `model` in acp.config is not accepted: fake_agent: Method not found: session/set_model (deterministic)");
    assert_snapshot!(set("", json!({"mode": "none"}), None).await, @"error: `mode` in acp.config is not accepted: fake_agent: Invalid params (deterministic)");
    assert_snapshot!(set("", json!({"slow": true}), None).await, @"error: `slow` in acp.config is not accepted: fake_agent: the agent has no such option, only [which-model, fast] (deterministic)");
}

#[tokio::test]
async fn a_canceled_agent_stops_and_ends() {
    let place = Place::new();
    let cancel = CancellationToken::new();
    let waiting = || place.log("stdout.log").contains("waiting");
    let watch = async {
        while !waiting() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let agent = agent("", &Value::Null);
    let run = place.run(&agent, "wait", |task| task.cancel = cancel.clone());
    let (said, ()) = tokio::join!(run, watch);
    assert_snapshot!(said, @r"
    says waitin
    error: the agent was canceled (canceled)
    ");
}

#[tokio::test]
async fn nothing_is_left_running() {
    let place = Place::new();
    for prompt in ["leave sleep 600", "leave setsid sleep 600"] {
        let said = place.run(&agent("", &Value::Null), prompt, |_| {}).await;
        let pid = said.lines().find_map(|line| line.strip_prefix("answer: ")).unwrap();
        gone(pid).await;
    }

    // Dropped in the middle.
    let work = place.work();
    let logs = place.0.path().join("logs");
    let agent = Acp::new("sh -c 'echo $$ > pid; exec sleep 600'", &Value::Null).unwrap();
    let env = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let task = Task::new("", &work, &logs).with_env(&env);
    let started = async {
        while std::fs::read_to_string(work.join("pid")).unwrap_or_default().trim().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = agent.run(task) => panic!("it does not answer"),
        () = started => {}
    }
    gone(std::fs::read_to_string(work.join("pid")).unwrap().trim()).await;
}

#[tokio::test]
async fn a_permission_is_judged_by_what_was_announced() {
    let mut lines = Vec::new();
    for what in ["edit here.txt", "edit ../x", "read here.txt", "execute a"] {
        let said = answer(&format!("announce {what}"), Permissions::ReadWrite).await;
        let said = said.lines().find_map(|line| line.strip_prefix("answer: ")).unwrap().to_owned();
        lines.push(format!("{what}: {said}"));
    }
    assert_snapshot!(lines.join("\n"), @r"
    edit here.txt: once
    edit ../x: no
    read here.txt: once
    execute a: no
    ");
    // A milder kind takes nothing back, and a more exact one counts.
    let mut lines = Vec::new();
    for (what, permissions) in [
        ("read here.txt ask edit", Permissions::ReadOnly),
        ("read here.txt ask edit", Permissions::ReadWrite),
        ("read ../x ask edit", Permissions::ReadWrite),
        ("read here.txt ask diff", Permissions::ReadOnly),
        ("read here.txt ask diff", Permissions::ReadWrite),
        ("execute here.txt ask read", Permissions::ReadWrite),
        ("edit here.txt ask read", Permissions::ReadOnly),
        ("other here.txt ask read", Permissions::ReadOnly),
        ("read here.txt ask other", Permissions::ReadOnly),
    ] {
        let said = answer(&format!("announce {what}"), permissions).await;
        let said = said.lines().find_map(|line| line.strip_prefix("answer: ")).unwrap().to_owned();
        lines.push(format!("{} {what}: {said}", permissions.as_str()));
    }
    assert_snapshot!(lines.join("\n"), @r"
    read-only read here.txt ask edit: no
    read-write read here.txt ask edit: once
    read-write read ../x ask edit: no
    read-only read here.txt ask diff: no
    read-write read here.txt ask diff: once
    read-write execute here.txt ask read: no
    read-only edit here.txt ask read: no
    read-only other here.txt ask read: once
    read-only read here.txt ask other: once
    ");
    assert_snapshot!(answer("unknown", Permissions::ReadOnly).await, @r#"
    says {"outcome":"selected","optionId":"yes"}
    answer: {"outcome":"selected","optionId":"yes"}
    session: s1
    "#);
}

async fn go_on(start: &str, prompt: &str, id: &'static str, budget: Option<f64>) -> String {
    let place = Place::new();
    let used: &'static Usage = Box::leak(Box::new(Usage { cost_usd: 0.25, ..Usage::default() }));
    let set = |task: &mut Task<'_>| {
        task.resume = Some(Session { id, used });
        task.budget_usd = budget;
        task.model = Some("big");
    };
    place.run(&agent(start, &Value::Null), prompt, set).await
}

#[tokio::test]
async fn sessions_are_loaded_where_the_agent_can() {
    assert_snapshot!(go_on("loads", "say hello", "s1", None).await, @r"
    says You 
    says said:
    uses Thinking about it
    says say hello
    answer: You said:

    say hello
    session: s1
    warning: the model big is not set, the agent uses its own: fake_agent: Method not found: session/set_model
    ");
    assert_snapshot!(go_on("loads", "say hello", "gone", None).await, @"error: fake_agent cannot continue its session: no such session (deterministic)");
    assert_snapshot!(go_on("", "say hello", "s1", None).await, @"error: fake_agent cannot continue its session: it cannot load sessions (deterministic)");
}

#[tokio::test]
async fn usage_is_of_the_run_and_a_budget_stops_it() {
    assert_snapshot!(go_on("loads", "spend 0.75", "s1", None).await, @r"
    says spent
    answer: spent
    session: s1
    warning: the model big is not set, the agent uses its own: fake_agent: Method not found: session/set_model
    usage: None in 7000 out 0 cached 0 $0.5 in 1 turns
    ");
    assert_snapshot!(go_on("loads", "spend 0.75 wait", "s1", Some(0.25)).await, @r"
    error: fake_agent stopped: its budget is used up (budget_exhausted)
    usage: None in 7000 out 0 cached 0 $0.5 in 1 turns
    ");
}
