use std::path::Path;

use fabro_fakes::{Response, Server};
use insta::assert_snapshot;
use serde_json::json;

use super::*;

fn hook(event: HookEvent, action: HookAction) -> Hook {
    Hook {
        name: None,
        event,
        action,
        matcher: None,
        blocking: event.can_block(),
        timeout: None,
        on_error: OnHookError::Proceed,
    }
}

fn script(script: &str) -> Hook {
    hook(HookEvent::StageStart, HookAction::Command { script: script.to_owned() })
}

fn around() -> Surroundings {
    let env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let redactor = Redactor::new([("TOKEN", "correct horse")]);
    Surroundings { env, redactor, ..Surroundings::default() }
}

async fn answer(hook: Hook, cwd: &Path) -> Answer {
    let data = json!({ "event": "stage_start", "node_id": "a", "note": "correct horse" });
    let env = vec![("FABRO_NODE_ID".to_owned(), "a".to_owned())];
    let occasion = Occasion { data, cwd: cwd.to_owned(), env };
    let runner = Runner::new(hook, around()).unwrap();
    runner.run(&occasion, &CancellationToken::new()).await
}

/// What a hook decides, and what went wrong with it.
async fn check(hook: Hook) -> String {
    let dir = tempfile::tempdir().unwrap();
    let Answer { decision, failure } = answer(hook, dir.path()).await;
    let decision = match decision {
        Decision::Proceed => "proceed".to_owned(),
        Decision::Block(reason) => format!("block: {reason}"),
    };
    match failure {
        Some(failure) => format!("{decision}, but {failure}"),
        None => decision,
    }
}

#[tokio::test]
async fn a_command_is_told_and_decides() {
    let dir = tempfile::tempdir().unwrap();
    let told = "cat > told.json; echo \"$FABRO_NODE_ID ${HOME-none}\" > env; echo fine";
    let given = answer(script(told), dir.path()).await;
    assert_eq!(given, Answer { decision: Decision::Proceed, failure: None });
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_snapshot!(read("told.json").trim_end(), @r#"{"event":"stage_start","node_id":"a","note":"[redacted:TOKEN]"}"#);
    assert_eq!(read("env"), "a none\n");
    assert_snapshot!(check(script("echo no more >&2; exit 2")).await, @"block: no more");
    assert_snapshot!(check(script("echo correct horse; exit 2")).await, @"block: [redacted:TOKEN]");
    for (zeros, code) in [(295, 3), (1_995, 2)] {
        // The reason is cut in the middle of the secret.
        let long = format!("printf '%0{zeros}d%s' 0 'correct horse' >&2; exit {code}");
        let decided = check(script(&long)).await;
        assert!(decided.contains("000[re") && !decided.contains("corr"), "{decided}");
    }
    assert_snapshot!(check(script("exit 2")).await, @"block: it gave no reason");
    assert_snapshot!(check(script(r#"echo '{"decision": "block", "reason": "late"}'"#)).await, @"block: late");
    assert_snapshot!(check(script(r#"echo checked; echo '{"decision": "block"}'"#)).await, @"block: it gave no reason");
    assert_snapshot!(check(script(r#"echo '{"decision": "proceed"}'"#)).await, @"proceed");
    assert_snapshot!(check(script("echo '{}'")).await, @"proceed");
    assert_snapshot!(check(script("printf '{\\n \"decision\":\\n \"block\"}'")).await, @"block: it gave no reason");
}

#[tokio::test]
async fn a_hook_that_does_not_block_decides_nothing() {
    let free = |text: &str| Hook { blocking: false, ..script(text) };
    assert_snapshot!(check(free(r#"echo '{"decision": "block"}'"#)).await, @"proceed");
    assert_snapshot!(check(free("exit 2")).await, @"proceed, but exit code 2");
}

#[tokio::test]
async fn a_failure_of_a_hook_is_its_own() {
    let quick = |text: &str| {
        let timeout = Some(Duration::from_millis(300));
        Hook { timeout, ..script(text) }
    };
    assert_snapshot!(check(script("echo; echo bad thing >&2; exit 3")).await, @"proceed, but exit code 3: bad thing");
    assert_snapshot!(check(script("kill -9 $$")).await, @"proceed, but it was killed by signal 9");
    assert_snapshot!(check(quick("sleep 600 & sleep 600")).await, @"proceed, but it took longer than 0.3 s, its `timeout`");
    assert_snapshot!(check(script("yes")).await, @"proceed, but it printed more than 1 MiB");
    assert_snapshot!(check(script("exec <&-; exit 0")).await, @"proceed");
    assert_snapshot!(check(script("echo '{bad'")).await, @"proceed, but its answer is not valid JSON (key must be a string at line 1 column 2)");
    assert_snapshot!(check(script(r#"echo '{"decision": "skip"}'"#)).await, @r#"proceed, but its decision is "skip", which is neither "proceed" nor "block""#);
    let closed = |text: &str| Hook { on_error: OnHookError::Block, ..quick(text) };
    assert_snapshot!(check(closed("exit 1")).await, @"block: it failed: exit code 1, but exit code 1");
    assert_snapshot!(check(closed("sleep 600")).await, @"block: it failed: it took longer than 0.3 s, its `timeout`, but it took longer than 0.3 s, its `timeout`");
    let gone = answer(script("true"), Path::new("/no/such/dir")).await;
    assert_snapshot!(gone.failure.unwrap(), @"working directory /no/such/dir is not a directory: create it, or choose another");
}

#[tokio::test]
async fn what_a_hook_leaves_does_not_hold_it() {
    // It left the group, and holds the output open until the fifo is opened for writing.
    let dir = tempfile::tempdir().unwrap();
    let left = "mkfifo gate; setsid -f sh -c 'read x < gate'; echo done";
    let given = answer(script(left), dir.path()).await;
    assert_eq!(given, Answer { decision: Decision::Proceed, failure: None });
    std::fs::write(dir.path().join("gate"), "x\n").unwrap();
}

#[tokio::test]
async fn a_canceled_hook_has_decided_nothing() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let runner = Runner::new(script("exit 2"), around()).unwrap();
    let occasion = Occasion { data: json!({}), cwd: "/".into(), env: Vec::new() };
    let given = runner.run(&occasion, &cancel).await;
    assert_eq!(given, Answer { decision: Decision::Proceed, failure: None });
}

fn server(url: String) -> Hook {
    hook(HookEvent::StageStart, HookAction::Http { url, headers: [].into() })
}

#[tokio::test]
async fn a_server_is_told_and_decides() {
    let json = |text: &str| Response::bytes(200, "application/json", text);
    let played = vec![json(r#"{"decision": "block", "reason": "frozen"}"#), json(""), json("ok")];
    let fake = Server::start(played).await.unwrap();
    let url = format!("{}/hook", fake.url());
    let headers = vec![("Authorization".to_owned(), "Bearer x".to_owned())];
    let runner = Runner::new(server(url.clone()), Surroundings { headers, ..around() }).unwrap();
    let occasion = Occasion { data: json!({ "n": 1 }), cwd: "/".into(), env: Vec::new() };
    let given = runner.run(&occasion, &CancellationToken::new()).await;
    assert_eq!(given.decision, Decision::Block("frozen".to_owned()));
    let request = &fake.requests()[0];
    assert_eq!(request.json(), json!({ "n": 1 }));
    assert_eq!(request.header("authorization"), Some("Bearer x"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_snapshot!(check(server(url.clone())).await, @"proceed");
    assert_snapshot!(check(server(url)).await, @"proceed");
}

#[tokio::test]
async fn a_server_that_fails_decides_nothing() {
    let played = vec![
        Response::redirect("http://elsewhere.example/"),
        Response::bytes(503, "text/plain", "busy"),
        Response::bytes(200, "text/plain", vec![b'x'; OUTPUT_LIMIT + 1]),
        Response::silence(),
    ];
    let fake = Server::start(played).await.unwrap();
    let quick = || Hook { timeout: Some(Duration::from_millis(300)), ..server(fake.url()) };
    let shown = async |hook: Hook| check(hook).await.replace(&fake.url(), "URL");
    assert_snapshot!(shown(server(fake.url())).await, @"proceed, but URL answered 302 Found: redirects are not followed, so give the final URL");
    assert_snapshot!(shown(server(fake.url())).await, @"proceed, but URL answered 503 Service Unavailable");
    assert_snapshot!(shown(server(fake.url())).await, @"proceed, but URL answered more than 1 MiB");
    assert_snapshot!(shown(quick()).await, @"proceed, but URL did not answer within 0.3 s");
    let gone = "http://127.0.0.1:1/".to_owned();
    assert!(
        check(server(gone))
            .await
            .starts_with("proceed, but http://127.0.0.1:1 cannot be reached: ")
    );
}
