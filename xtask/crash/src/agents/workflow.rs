//! A workflow of agents: in a line with one thread, in a nested fan-out, in a loop, with an answer
//! that must be mended, and with an agent of an agent's own.
//!
//! Each prompt ends in a plan, `PLAN NAME: step, step`, which the [model](super::model) follows.

use std::fmt::Write as _;

use super::Model;
use crate::case::Work;

/// How many agents are at work at once, at most.
pub(super) const AT_ONCE: usize = 5;

/// What the answer of `mend` is to be.
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
        args: &["--model", "scripted"],
        files: files.into(),
        model: Some(model),
    }
}

fn text() -> String {
    let mut text =
        String::from("digraph agents {\n  start [shape=Mdiamond]; exit [shape=Msquare]\n");
    let thread = ", fidelity=full, thread_id=main";
    agent(&mut text, "t1", "shell, write, say", thread);
    agent(&mut text, "t2", "look, pair, say", thread);
    agent(&mut text, "mend", "shell, bad, bad, good", r#", output_schema="@count.json""#);
    put(&mut text, "start -> t1 -> t2 -> mend -> outer");
    put(&mut text, "outer [shape=component]; outer_join [shape=tripleoctagon]");
    put(&mut text, "inner [shape=component]; inner_join [shape=tripleoctagon]");
    agent(&mut text, "b1", "shell, say", thread);
    agent(&mut text, "b2", "pair, look, say", thread);
    put(&mut text, "outer -> b1 -> b2 -> outer_join");
    agent(&mut text, "d1", "shell, shell, say", "");
    agent(&mut text, "d2", "write, shell, say", "");
    agent(&mut text, "after", "shell, say", "");
    put(&mut text, "outer -> inner -> d1 -> inner_join; inner -> d2 -> inner_join");
    put(&mut text, "inner_join -> after -> outer_join");
    agent(&mut text, "chief", "shell, spawn, wait, say", "");
    put(&mut text, "outer -> chief -> outer_join -> again");
    agent(&mut text, "again", "slow, say", thread);
    put(&mut text, r#"again -> again [condition="internal.node_visit_count < 2"]"#);
    put(&mut text, r#"again -> t3 [condition="internal.node_visit_count >= 2"]"#);
    agent(&mut text, "t3", "write, shell, say", thread);
    for node in ["c1", "c2"] {
        let script = "echo $FABRO_NODE@$FABRO_VISIT >> effects.log";
        put(&mut text, &format!(r#"{node} [shape=parallelogram, script="{script}"]"#));
    }
    put(&mut text, "t3 -> c1 -> c2 -> exit");
    text.push_str("}\n");
    text
}

fn agent(text: &mut String, node: &str, steps: &str, attributes: &str) {
    let visit = "{{ context.internal.node_visit_count }}";
    let prompt = format!("Do your part.\\nPLAN {node}@{visit}: {steps}");
    put(text, &format!(r#"{node} [prompt="{prompt}", permissions=full{attributes}]"#));
}

fn put(text: &mut String, line: &str) {
    let _ = writeln!(text, "  {line}");
}
