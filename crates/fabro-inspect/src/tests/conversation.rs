//! Conversations with models.

use fabro_blob::DirBlobs;
use fabro_events::{Given, Note};
use serde_json::Value;

use super::*;

#[test]
fn what_the_model_was_given_is_read_back() {
    let mut bench = Bench::new("digraph { start -> talk -> exit }");
    let mut say = |role: &str, session: &str, parent: Option<&str>, system: &str| {
        let blob = |value: Value| {
            let blob = bench.blobs.put(value.to_string().as_bytes()).unwrap();
            Some(Arc::new(blob.to_value()))
        };
        let tools = if parent.is_none() { blob(json!([{"name": "look"}])) } else { None };
        let opening = (role == "user").then(|| Arc::new(json!("The stage is.")));
        let given = Given { system: blob(json!(system)), tools, opening };
        let body = EventBody::AgentMessage {
            role: role.to_owned(),
            text: "short".to_owned(),
            message: None,
            usage: None,
            given: Some(Box::new(given)),
            purpose: None,
        };
        let session_id = Some(session.into());
        let parent_session_id = parent.map(Into::into);
        let notes = vec![Note { body, session_id, parent_session_id }];
        bench.input(Input::Note { branch: Arc::from(""), notes, blobs: Vec::new() });
    };
    say("user", "talk@1", None, "Be brief.");
    say("user", "talk@1/a1", Some("talk@1"), "Be quick.");
    say("assistant", "talk@1", None, "Be kind.");
    let report = stage(&bench.events, "talk", true, &*bench.blobs).unwrap();
    insta::assert_snapshot!(serde_json::to_string(&report).unwrap(), @r#"{"rank":2,"node":"talk","visit":1,"branch":null,"status":"running","started_at":"1970-01-01T00:00:01.000Z","ended_at":null,"attempts":1,"edge":null,"duration_ms":3000,"system":"Be brief.","tools":[{"name":"look"}],"opening":"The stage is.","prompt":null,"response":null,"outcome":null,"transcript":[{"role":"user","content":"short"},{"role":"user","session_id":"talk@1/a1","content":"short","system":"Be quick.","opening":"The stage is."},{"role":"assistant","content":"short","system":"Be kind.","tools":[{"name":"look"}]}]}"#);
    let none = DirBlobs::new("/nonexistent");
    let missing = stage(&bench.events, "talk", true, &none).unwrap_err().to_string();
    assert!(missing.starts_with("the system prompt of `talk@1` cannot be read back"), "{missing}");
}

#[test]
fn a_conversation_is_read_back_from_the_last_attempt() {
    let mut bench = Bench::new("digraph { start -> talk -> exit; talk [max_retries=1] }");
    let branch: Arc<str> = Arc::from("");
    let say = |bench: &mut Bench, bodies: Vec<EventBody>| {
        let notes = bodies.into_iter().map(Into::into).collect();
        bench.input(Input::Note { branch: Arc::clone(&branch), notes, blobs: Vec::new() });
    };
    let message = |role: &str, message: Option<Value>| EventBody::AgentMessage {
        role: role.into(),
        text: "short".into(),
        message: message.map(Arc::new),
        usage: None,
        given: None,
        purpose: None,
    };
    say(&mut bench, vec![message("user", None)]);
    bench.end("talk", exits(1));
    assert!(matches!(bench.events.last().unwrap().entry.body, EventBody::StageRetrying { .. }));
    let large = bench.blobs.put(br#"{"role":"assistant","content":[{"type":"text","text":"x"}]}"#);
    say(&mut bench, vec![message("user", Some(json!("the whole question")))]);
    let tool = json!({"event": "agent.tool.completed", "properties": {"call_id": "1",
        "tool": "grep", "is_error": true, "output": "no such file", "duration_ms": 3}});
    let tool: EventBody = serde_json::from_value(tool).unwrap();
    let steered = EventBody::AgentSteered { text: "Be brief".into(), source: "inbox".into() };
    say(&mut bench, vec![message("assistant", Some(large.unwrap().to_value()))]);
    say(&mut bench, vec![tool, steered]);
    let transcript = stage(&bench.events, "talk", true, &*bench.blobs).unwrap().transcript;
    let lines: Vec<_> = transcript.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"role":"user","content":"the whole question"}
    {"role":"assistant","content":[{"type":"text","text":"x"}]}
    {"role":"tool","content":"no such file","tool":"grep","call_id":"1","is_error":true}
    {"role":"user","content":"Be brief"}
    "#);
    let is_message = |event: &&Event| matches!(event.entry.body, EventBody::AgentMessage { .. });
    let (name, events) = conversation(&bench.events, None).unwrap();
    assert_eq!((name.as_str(), events.len()), ("talk@1", 4));
    let (name, events) = conversation(&bench.events, Some("start")).unwrap();
    assert_eq!((name.as_str(), events.into_iter().find(is_message)), ("start@1", None));
    let error = conversation(&bench.events[..2], None).unwrap_err().to_string();
    assert_eq!(error, "no stage of the run has a conversation with a model");
    let none = DirBlobs::new("/nonexistent");
    let missing = stage(&bench.events, "talk", true, &none).unwrap_err();
    insta::assert_snapshot!(missing, @"a message of `talk@1` cannot be read back: blob://sha256/b140b90a43115baba8a4aee761602f93fb32d0834a8db00076f897f0f3721003 was stored and is gone; restore the store's `blobs` directory, or run the stage that made it again");
}
