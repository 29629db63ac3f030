//! Which files an agent may change after a resume, and later in its thread.

use super::*;
use crate::LocalToolbox;

#[test]
fn a_file_that_a_conversation_has_shown_may_be_changed_as_long_as_it_is_the_same() {
    let turn = |calls: &[(&str, Value)]| -> Value {
        let calls = calls.iter();
        calls.map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect()
    };
    let read = |path: &str| ("read_file", json!({"file_path": path}));
    let edit = |path: &str| {
        ("edit_file", json!({"file_path": path, "old_string": "old", "new_string": "new"}))
    };
    let model = json!({
        "a": [
            {
                "tool_calls": turn(&[read("one"), read("two"), read("three")]),
                "usage": {"cost_usd": 2.0},
            },
            {"tool_calls": turn(&[edit("one"), edit("two")])},
            {"text": "done"},
        ],
        // It starts after the resume, without the conversation.
        "b": [{"tool_calls": turn(&[edit("three")])}, {"text": "done"}],
        "c": [{"tool_calls": turn(&[edit("two"), edit("three")])}, {"text": "done"}],
    });
    let source = "digraph {
        graph [max_cost=1.5, default_fidelity=full, default_thread=all]
        start -> a -> b -> c -> exit; a [prompt=A]; b [prompt=B]; c [prompt=C]
    }";
    let toolbox = LocalToolbox::new(Arc::new(FakeExec::new()), Vec::new(), Redactor::default());
    let agents = Agents { toolbox: Arc::new(toolbox), ..Agents::default() };
    let scene = Scene::new(source).model(&model.to_string()).agents(agents);
    std::fs::create_dir(scene.work_dir()).unwrap();
    for name in ["one", "two", "three"] {
        std::fs::write(scene.work_dir().join(name), "old").unwrap();
    }
    scene.drive().unwrap();
    std::fs::write(scene.work_dir().join("two"), "old, but not the same").unwrap();
    scene.drive_with(Some(9.0)).unwrap();
    let told = scene.events().into_iter().filter_map(|event| match event.entry.body {
        EventBody::AgentToolCompleted(done) if done.tool == "edit_file" => {
            Some(format!("{}: {}", event.entry.node_id?, done.output.as_str()?))
        }
        _ => None,
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r"
    a: replaced 1 occurrence in one, at line 1
    a: two has changed since it was read: read it again before changing it
    b: three exists, but was not read yet: read it before changing it
    c: two has changed since it was read: read it again before changing it
    c: replaced 1 occurrence in three, at line 1
    ");
}
