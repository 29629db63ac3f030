//! A workflow of agents: in a line with one thread, in a nested fan-out, in a loop, with an answer
//! that must be corrected, and with an agent of an agent's own.
//!
//! Each prompt ends in a plan, `PLAN NAME: step, step`, which the [model](crate::model) follows.

use crate::model::Model;
use crate::work::Work;
use crate::workflow::Text;

/// How many agents run at once, at most.
pub(super) const AT_ONCE: usize = 5;

/// The schema of the answer of `fix`.
const COUNT: &str = r#"{"type": "object", "required": ["count"],
    "properties": {"count": {"type": "integer"}}}"#;

/// The file to run, and what it needs.
pub(super) fn work(model: Model) -> Work {
    let files = [
        ("agents.fabro", text()),
        ("count.json", COUNT.to_owned()),
        ("effects.log", String::new()),
    ];
    Work {
        workflow: "agents.fabro",
        args: &["--model", "default"],
        files: files.into(),
        model: Some(model),
        is_repository: false,
    }
}

fn text() -> String {
    let mut text = Text::new("agents");
    let thread = ", fidelity=full, thread_id=main";
    agent(&mut text, "t1", "shell, write, say", thread);
    agent(&mut text, "t2", "look, pair, say", thread);
    agent(&mut text, "fix", "shell, bad, bad, good", r#", output_schema="@count.json""#);
    text.put("start -> t1 -> t2 -> fix -> outer");
    text.put("outer [shape=component]; outer_join [shape=tripleoctagon]");
    text.put("inner [shape=component]; inner_join [shape=tripleoctagon]");
    agent(&mut text, "b1", "shell, say", thread);
    agent(&mut text, "b2", "pair, look, say", thread);
    text.put("outer -> b1 -> b2 -> outer_join");
    agent(&mut text, "d1", "shell, shell, say", "");
    agent(&mut text, "d2", "write, shell, say", "");
    agent(&mut text, "after", "shell, say", "");
    text.put("outer -> inner -> d1 -> inner_join; inner -> d2 -> inner_join");
    text.put("inner_join -> after -> outer_join");
    agent(&mut text, "chief", "shell, spawn, wait, say", "");
    text.put("outer -> chief -> outer_join -> again");
    agent(&mut text, "again", "slow, say", thread);
    text.put(r#"again -> again [condition="internal.node_visit_count < 2"]"#);
    text.put(r#"again -> t3 [condition="internal.node_visit_count >= 2"]"#);
    agent(&mut text, "t3", "write, shell, say", thread);
    for node in ["c1", "c2"] {
        let script = "echo $FABRO_NODE@$FABRO_VISIT >> effects.log";
        text.put(&format!(r#"{node} [shape=parallelogram, script="{script}"]"#));
    }
    text.put("t3 -> c1 -> c2 -> exit");
    text.end()
}

fn agent(text: &mut Text, node: &str, steps: &str, attributes: &str) {
    let visit = "{{ context.internal.node_visit_count }}";
    let prompt = format!("Do your part.\\nPLAN {node}@{visit}: {steps}");
    text.put(&format!(r#"{node} [prompt="{prompt}", permissions=full{attributes}]"#));
}
