//! The workflow that is run again and again: 60 nodes in a line, in loops, in a nested fan-out, with
//! retries, a stage that fails and is fixed, a gate, prompts, a large value and a sub-workflow.

use std::fmt::Write as _;

use crate::work::Work;

/// What every command does: leave a line, take its time, print something.
const SCRIPT: &str =
    r#"echo $FABRO_NODE@$FABRO_VISIT >> \"$EFFECTS\"; sleep 0.01; echo $FABRO_NODE $FABRO_VISIT"#;

/// Turns of the model. Those of `draft` differ, so that a lost place in the list is seen.
const MODEL: &str = r#"{
  "ask": [{"text": "The answer is 42.\n{\"context_updates\": {\"answer\": 42}}"}],
  "draft": [
    {"text": "{\"context_updates\": {\"draft\": \"one\", \"first\": true}}"},
    {"text": "{\"context_updates\": {\"draft\": \"two\", \"second\": true}}"},
    {"text": "{\"context_updates\": {\"draft\": \"three\", \"third\": true}}"}
  ],
  "*": [{"text": "Yes.", "delay_ms": 5}]
}
"#;

/// Answers of the person at the gate.
const ANSWERS: &str = r#"{"gate": ["A", "A", "D"]}"#;

/// The file to run, and what it needs.
pub(crate) fn work() -> Work {
    let files = [
        ("crash.fabro", parent()),
        ("child.fabro", child()),
        ("model.json", MODEL.to_owned()),
        ("answers.json", ANSWERS.to_owned()),
        ("effects.log", String::new()),
    ];
    Work {
        workflow: "crash.fabro",
        args: &["--answers", "answers.json", "--model-script", "model.json"],
        files: files.into(),
        model: None,
        is_repository: false,
    }
}

/// The sub-workflow.
fn child() -> String {
    let mut text = Text::new("child");
    text.line("start", 3, "k", "exit");
    text.end()
}

/// The workflow.
fn parent() -> String {
    let mut text = Text::new("crash");
    text.line("start", 16, "a", "loop1");
    // A loop that counts itself.
    text.commands(&["loop1", "loop2", "loop3"]);
    text.put("loop1 -> loop2 -> loop3");
    text.put(r#"loop3 -> loop1 [condition="internal.node_visit_count < 3"]"#);
    text.put(r#"loop3 -> ask [condition="internal.node_visit_count >= 3"]"#);
    // Prompts, one of them in a loop.
    text.put(r#"ask [shape=tab, prompt="What is it?"]"#);
    text.put(r#"draft [shape=tab, prompt="Write it. Last time: {{ context.command.output }}"]"#);
    text.commands(&["read"]);
    text.put("ask -> draft -> read");
    text.put(r#"read -> draft [condition="internal.node_visit_count < 3"]"#);
    text.put(r#"read -> flaky [condition="internal.node_visit_count >= 3"]"#);
    // A stage whose first attempt fails, and one that fails until something was fixed.
    text.command("flaky", "; test $FABRO_ATTEMPT -gt 1", ", retry_policy=standard");
    text.command("broken", "; test $FABRO_VISIT -gt 1", "");
    text.commands(&["fix"]);
    text.put("flaky -> broken");
    text.put(r#"broken -> fix [condition="outcome=failed"]"#);
    text.put(r#"broken -> gate [condition="outcome=succeeded"]"#);
    text.put("fix -> broken");
    text.put(r#"gate [shape=hexagon, label="Good enough?"]"#);
    text.commands(&["again"]);
    text.put(r#"gate -> again [label="[A] Again"]; gate -> outer [label="[D] Done"]"#);
    text.put("again -> gate");
    fan_out(&mut text);
    text.command("large", "; head -c 150000 /dev/zero | tr '\\\\0' x", "");
    text.put(r#"sub [shape=house, stack.child_workflow="child.fabro"]"#);
    text.put("outer_join -> large -> sub");
    text.line("sub", 11, "z", "exit");
    text.end()
}

/// A fan-out of three branches; the second is a fan-out itself, and there are loops in branches.
fn fan_out(text: &mut Text) {
    text.put("outer [shape=component]; outer_join [shape=tripleoctagon]");
    text.put("inner [shape=component]; inner_join [shape=tripleoctagon]");
    text.line("outer", 4, "b", "outer_join");
    text.commands(&["c1", "c2", "c3"]);
    text.put("outer -> c1 -> c2 -> c3");
    text.put(r#"c3 -> c1 [condition="internal.node_visit_count < 3"]"#);
    text.put(r#"c3 -> outer_join [condition="internal.node_visit_count >= 3"]"#);
    text.put("outer -> inner");
    text.line("inner", 3, "d", "inner_join");
    text.commands(&["e1", "e2", "after_inner"]);
    text.put("inner -> e1 -> e2");
    text.put(r#"e2 -> e1 [condition="internal.node_visit_count < 2"]"#);
    text.put(r#"e2 -> inner_join [condition="internal.node_visit_count >= 2"]"#);
    text.put(r#"check [shape=tab, prompt="Is it right?"]"#);
    text.put("inner -> check -> inner_join -> after_inner -> outer_join");
}

/// The text of a workflow.
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn new(name: &str) -> Self {
        let mut text = Self(format!("digraph {name} {{\n"));
        text.put("start [shape=Mdiamond]; exit [shape=Msquare]");
        text
    }

    pub(crate) fn put(&mut self, line: &str) {
        let _ = writeln!(self.0, "  {line}");
    }

    fn command(&mut self, node: &str, more: &str, attributes: &str) {
        self.put(&format!(r#"{node} [shape=parallelogram, script="{SCRIPT}{more}"{attributes}]"#));
    }

    fn commands(&mut self, nodes: &[&str]) {
        for node in nodes {
            self.command(node, "", "");
        }
    }

    /// A line of so many commands between two nodes.
    fn line(&mut self, from: &str, commands: u32, prefix: &str, to: &str) {
        let mut way = from.to_owned();
        for number in 1..=commands {
            let node = format!("{prefix}{number:02}");
            self.command(&node, "", "");
            way.extend([" -> ", &node]);
        }
        self.put(&format!("{way} -> {to}"));
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workflow_has_sixty_nodes() {
        let text = parent();
        assert_eq!(text.matches("shape=").count(), 60, "{text}");
    }
}
