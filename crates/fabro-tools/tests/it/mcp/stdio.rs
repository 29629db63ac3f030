use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{call, call_until, connect, shown, stdio, tool};

async fn failure(mode: &str) -> String {
    let mut server = stdio(mode);
    server.startup_timeout = Some(match mode {
        "silent" | "listless" => Duration::from_millis(300),
        _ => Duration::from_mins(1),
    });
    let servers = connect(server).await;
    let failed = servers.failed().iter().map(ToString::to_string).collect();
    servers.close().await;
    failed
}

#[tokio::test]
async fn tools_have_names_schemas_and_full_permissions() {
    let servers = connect(stdio("")).await;
    let tools = servers.tools();
    let listed: Vec<_> = tools
        .iter()
        .map(|it| format!("{} {} {}", it.spec().name, it.needs().as_str(), it.spec().parameters))
        .collect();
    assert_snapshot!(listed.join("\n"), @r#"
    mcp__fake__echo full {"properties":{"text":{"type":"string"}},"required":["text"],"type":"object"}
    mcp__fake__die_once full {"type":"object","properties":{}}
    mcp__fake__env full {"type":"object","properties":{}}
    mcp__fake__fail full {"type":"object","properties":{}}
    mcp__fake__hang full {"type":"object","properties":{}}
    mcp__fake__die full {"type":"object","properties":{}}
    mcp__fake__huge full {"type":"object","properties":{}}
    mcp__fake__flood full {"type":"object","properties":{}}
    mcp__fake__garbage full {"type":"object","properties":{}}
    mcp__fake__leave full {"type":"object","properties":{}}
    mcp__fake__dawdle full {"type":"object","properties":{}}
    mcp__fake__unknown full {"type":"object","properties":{}}
    mcp__fake__canceled full {"type":"object","properties":{}}
    mcp__fake__steady full {"type":"object","properties":{}}
    "#);
    assert_snapshot!(tools[0].spec().description, @"Says it again");
    assert_snapshot!(tools[1].spec().description, @"`die once` of the MCP server `fake`");
    let told = tools[0].instructions();
    assert_eq!(told, Some("About all tools of the MCP server `fake`:\n\nBe gentle."));
    assert_eq!(tools[1].instructions(), None);
    servers.close().await;
}

#[tokio::test]
async fn the_workflow_is_told_only_where_it_is_configured() {
    for context in [false, true] {
        let mut server = stdio("");
        server.context = context;
        let servers = connect(server).await;
        let said = call(&tool(&servers, "echo"), json!({"text": "hi"})).await;
        let expected = r#"hi {"workflow_summary":"so far","recent_turns":["hello"],"round":3}"#;
        assert_eq!(shown(&said), if context { expected } else { "hi null" });
        servers.close().await;
    }
}

#[tokio::test]
async fn a_program_gets_the_environment_it_is_given() {
    let servers = connect(stdio("")).await;
    let said = shown(&call(&tool(&servers, "env"), json!({})).await);
    // The variable by which the server and its child processes are found and killed.
    let (mark, given) = said.split_once('\n').unwrap();
    assert!(mark.starts_with("FABRO_AGENT="), "{said}");
    assert_snapshot!(given, @r"
    GIVEN=1
    OWN=set
    PATH=/usr/bin:/bin
    ");
    servers.close().await;
}

#[tokio::test]
async fn failures_of_tools_are_read_by_the_model() {
    let servers = connect(stdio("")).await;
    assert_snapshot!(shown(&call(&tool(&servers, "fail"), json!({})).await), @"error: no such file");
    assert_snapshot!(shown(&call(&tool(&servers, "unknown"), json!({})).await), @"error: MCP server `fake`: no such tool");
    servers.close().await;
}

#[tokio::test]
async fn noise_between_the_messages_is_passed_over() {
    let servers = connect(stdio("garbage")).await;
    for name in ["garbage", "flood"] {
        let said = call(&tool(&servers, name), json!({"text": "still here"})).await;
        assert_eq!(shown(&said), "still here null");
    }
    servers.close().await;
}

#[tokio::test]
async fn a_tool_that_hangs_is_given_up() {
    let mut server = stdio("");
    server.tool_timeout = Some(Duration::from_millis(200));
    let servers = connect(server).await;
    let hang = tool(&servers, "dawdle");
    assert_snapshot!(shown(&call(&hang, json!({})).await), @"error: MCP server `fake`: no result within 0.2 s; the call may still take effect");
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_snapshot!(shown(&call_until(&hang, json!({}), &cancel).await), @"error: the call was canceled");
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_hangs_is_started_again() {
    let mut server = stdio("");
    server.tool_timeout = Some(Duration::from_millis(200));
    let servers = connect(server).await;
    let begun = Instant::now();
    assert_snapshot!(shown(&call(&tool(&servers, "hang"), json!({})).await), @r"
    error: the call was interrupted, and may have taken effect or not: MCP server `fake`: no result within 0.2 s, nor an answer to a ping: check the server, or raise its tool_timeout
    the server was started again
    ");
    assert!(begun.elapsed() < Duration::from_secs(2), "SIGTERM ends a program that does not read");
    let said = call(&tool(&servers, "echo"), json!({"text": "on"})).await;
    assert_eq!(shown(&said), "on null");
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_dies_is_started_once_more() {
    let servers = connect(stdio("")).await;
    let died = call(&tool(&servers, "die"), json!({})).await;
    assert_snapshot!(shown(&died), @r"
    error: the call was interrupted, and may have taken effect or not: MCP server `fake`: it ended with exit code 7; its stderr:
    out of memory
    the server was started again
    ");
    let said = call(&tool(&servers, "echo"), json!({"text": "again"})).await;
    assert_eq!(shown(&said), "again null");
    servers.close().await;
}

#[tokio::test]
async fn a_call_is_repeated_only_where_that_is_safe() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("died");
    let servers = connect(stdio("")).await;
    let said = call(&tool(&servers, "die_once"), json!({"text": mark})).await;
    assert_eq!(shown(&said), "alive");
    servers.close().await;
}

#[tokio::test]
async fn results_are_whole_up_to_a_limit() {
    let servers = connect(stdio("")).await;
    let huge = tool(&servers, "huge");
    let said = call(&huge, json!({"text": "5000000"})).await;
    assert_eq!(said.text.len(), 5_000_000);
    let said = call(&huge, json!({"text": "20000000"})).await;
    assert_snapshot!(shown(&said), @r"
    error: the call was interrupted, and may have taken effect or not: MCP server `fake`: it sent a message of more than 8388608 bytes
    the server was started again
    ");
    servers.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_come_up_says_why() {
    assert_snapshot!(failure("crash").await, @r"
    MCP server `fake`: it ended with exit code 3; its stderr:
    loading
    no config found
    ");
    assert_snapshot!(failure("silent").await, @r"
    MCP server `fake`: it did not answer within 0.3 s: check its command, or raise its startup_timeout; its stderr:
    thinking
    ");
    assert_snapshot!(failure("listless").await, @"MCP server `fake`: it did not answer within 0.3 s: check its command, or raise its startup_timeout");
    assert_snapshot!(failure("refuse").await, @"MCP server `fake`: not today");
    assert_snapshot!(failure("endless").await, @"MCP server `fake`: it sent a message of more than 8388608 bytes");
}

#[tokio::test]
async fn nothing_is_left_running() {
    for closed in [true, false] {
        let servers = connect(stdio("")).await;
        let leave = tool(&servers, "leave");
        let said = shown(&call(&leave, json!({})).await);
        let pid: i32 = said.parse().unwrap();
        assert!(runs(pid));
        if closed {
            servers.close().await;
            let late = call(&leave, json!({})).await;
            assert_snapshot!(shown(&late), @"error: MCP server `fake`: it was ended with its session");
        } else {
            drop((servers, leave));
        }
        let begun = Instant::now();
        while runs(pid) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{pid} runs on");
            tokio::task::yield_now().await;
        }
    }
}

/// A process that has ended but was not asked for yet does not run.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
