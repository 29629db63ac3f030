use fabro_types::{Outcome, Status};

use super::*;

fn event(body: EventBody) -> Event {
    let entry = Entry {
        node_id: Some("test".into()),
        visit: Some(2),
        branch: Some("checks@1/lint".into()),
        ..Entry::new(body)
    };
    Event {
        run_id: RunId::from_parts(1_700_000_000_000, 42),
        seq: 7,
        ts_ms: 1_700_000_000_123,
        entry,
    }
}

#[test]
fn the_published_shape() {
    let stage = CompletedStage {
        rank: 3,
        attempts: 1,
        outcome: Outcome::succeeded().with_update("command.exit_code", 0),
        prompt: None,
        script: None,
        env: std::collections::BTreeMap::new(),
    };
    insta::assert_snapshot!(event(EventBody::StageCompleted(Arc::new(stage))).to_json_line(), @r#"{"id":"01HF7YAT00000000000000001A-7","ts":"2023-11-14T22:13:20.123Z","run_id":"01HF7YAT00000000000000001A","seq":7,"event":"stage.completed","properties":{"rank":3,"attempts":1,"status":"succeeded","context_updates":{"command.exit_code":0},"duration_ms":0},"node_id":"test","visit":2,"branch":"checks@1/lint"}"#);
}

#[test]
fn entries_read_back() {
    let choice = EdgeChoice {
        to: "fix".into(),
        label: None,
        edge: None,
        tier: Tier::Condition,
        random: false,
        restart: false,
        gate: None,
        failure: Some(FailureHandling::Handled),
        overrides: Vec::new(),
        candidates: vec![Candidate {
            to: "fix".into(),
            label: Some("Fix".into()),
            condition: Some("outcome=fail".into()),
            weight: fabro_types::Weight::new(2.0),
            holds: true,
            clauses: vec![],
        }],
    };
    let stuck = EventBody::BranchCompleted {
        status: Status::Failed,
        failure: None,
        canceled: false,
        candidates: choice.candidates.clone(),
    };
    let drawn = EdgeChoice { random: true, ..choice.clone() };
    let chosen = [choice, drawn].map(EventBody::EdgeSelected);
    let bodies = chosen.into_iter().chain([EventBody::RunStarted {}, stuck]);
    for entry in bodies.map(|body| event(body).entry) {
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}

#[test]
fn messages_read_back_with_and_without_what_was_given() {
    let check = |given: &str, expect: Option<Given>| {
        let text = format!(
            r#"{{"event":"agent.message","properties":{{"role":"user","text":"Hi"{given}}}}}"#
        );
        let entry: Entry = serde_json::from_str(&text).unwrap();
        let EventBody::AgentMessage { given, .. } = &entry.body else { panic!() };
        assert_eq!(given.as_deref(), expect.as_ref());
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
    };
    let value = |name: &str| Some(Arc::new(serde_json::Value::from(name)));
    check("", None);
    check(r#","given":{"tools":"t"}"#, Some(Given { tools: value("t"), ..Given::default() }));
    let all = Given { system: value("s"), tools: value("t"), opening: value("o") };
    check(r#","given":{"system":"s","tools":"t","opening":"o"}"#, Some(all));
}

#[test]
fn times_outside_the_calendar_do_not_panic() {
    for ms in [i64::MIN, i64::MAX] {
        assert!(timestamp(ms).ends_with('Z'));
    }
}

#[test]
fn a_note_is_written_as_its_entry() {
    let body = EventBody::AgentToolStarted {
        call_id: "c1".into(),
        tool: "grep".into(),
        arguments: "{}".into(),
    };
    let note = Note {
        session_id: Some("a@1/2".into()),
        parent_session_id: Some("a@1".into()),
        ..body.clone().into()
    };
    let entry = Entry {
        session_id: Some("a@1/2".into()),
        parent_session_id: Some("a@1".into()),
        ..Entry::new(body)
    };
    let json = serde_json::to_value(&note).unwrap();
    assert_eq!(json, serde_json::to_value(&entry).unwrap());
    assert_eq!(serde_json::from_value::<Note>(json).unwrap(), note);
}

#[test]
fn names_cannot_traverse_paths() {
    let entry = Entry { node_id: Some("a_1".into()), ..Entry::new(EventBody::RunStarted {}) };
    let check = |entry: Entry, expect: Option<&str>| {
        let found = entry.check_names().err().map(|(field, name)| format!("{field} {name}"));
        assert_eq!(found.as_deref(), expect);
    };
    let node = |id: &str| Entry { node_id: Some(id.into()), ..entry.clone() };
    let branch = |path: &str| Entry { branch: Some(path.into()), ..entry.clone() };
    check(entry.clone(), None);
    for path in ["checks@1/lint", "each@12#2/work[3]/deep@1/a#2", ""] {
        check(branch(path), None);
    }
    for id in ["../x", "a/b", "..", "", ".x", r"a\b", "a\n", "C:x"] {
        check(node(id), Some(&format!("node_id {id}")));
    }
    for path in ["../x@1/a", "a@1/../b", "/a", "a//b", r"a\b", "a@1/b\u{1b}"] {
        check(branch(path), Some(&format!("branch {path}")));
    }
    let kept = |file: &str| {
        Entry::new(EventBody::ArtifactCaptured(Box::new(CapturedArtifact {
            path: "x".to_owned(),
            size: 1,
            sha256: String::new(),
            media_type: String::new(),
            attempt: 1,
            file: file.into(),
        })))
    };
    check(kept("files/a@1/retry_1/..x"), None);
    for file in ["../x", "/etc/passwd", "files/../../x"] {
        check(kept(file), Some(&format!("file {file}")));
    }
}
