//! The text of preambles, and their size.

use fabro_tokens::{CountTokens, O200k};
use fabro_types::Fidelity;
use serde_json::json;

use super::*;

mod room;
mod wording;

const GOAL: &str = "Add a /health endpoint to the API server";

/// A run to render: stages oldest first.
struct Run<'a> {
    goal: &'a str,
    stages: Vec<Stage>,
    context: Vec<(String, Shown)>,
    parent: Option<&'a str>,
}

impl Run<'_> {
    fn with(mut self, key: &str, value: &str) -> Self {
        self.context.push((key.to_owned(), Shown::Value(Arc::new(value.into()))));
        self
    }

    fn render(&self, fidelity: Fidelity, limits: Limits, count: &dyn CountTokens) -> String {
        self.preamble(fidelity, limits).render(count)
    }

    fn preamble(&self, fidelity: Fidelity, limits: Limits) -> Preamble<'_> {
        let stages = self.stages.iter().rev().cloned();
        Preamble::new(self.goal)
            .run_id("01HF7YAT00000000000000001A")
            .parent(self.parent)
            .earlier_stages(self.stages.len(), stages)
            .more_context(self.context.iter().cloned())
            .fidelity(fidelity)
            .limits(limits)
    }

    fn text(&self, fidelity: Fidelity) -> String {
        self.render(fidelity, Limits::default(), &O200k)
    }
}

fn run(stages: Vec<Stage>, context: serde_json::Value) -> Run<'static> {
    let serde_json::Value::Object(context) = context else { panic!("an object") };
    let context =
        context.into_iter().map(|(key, value)| (key, Shown::Value(Arc::new(value)))).collect();
    Run { goal: GOAL, stages, context, parent: None }
}

fn command(node: &str, stdout: &str, stderr: &str, exit_code: i32) -> Stage {
    let detail = Detail::Command {
        script: "cargo test 2>&1 || true".into(),
        stdout: Output::Text(stdout.into()),
        stderr: Output::Text(stderr.into()),
        exit_code: Some(exit_code),
    };
    let status = if exit_code == 0 { Status::Succeeded } else { Status::Failed };
    let failure = (exit_code != 0).then(|| format!("exit code {exit_code}"));
    Stage { detail, failure, ..Stage::new(node, status) }
}

fn plan(response: Output, files: &[&str]) -> Stage {
    let detail = Detail::llm("claude-sonnet-4-5", 12_400, 3_200, response);
    let files = files.iter().map(|file| (*file).to_owned()).collect();
    Stage { detail, files, ..Stage::new("plan", Status::Succeeded) }
}

/// One stage of every kind, with everything that can be told about it.
fn every_kind() -> Run<'static> {
    let branch = |id: &str, status, output| Branch {
        id: id.into(),
        status,
        notes: None,
        output,
        is_command: true,
    };
    let plan = Stage {
        word: Some("needs_dod".into()),
        preferred_label: Some("Fix".into()),
        suggested_next_ids: vec!["fix".into(), "test".into()],
        notes: Some("two files\nto change".into()),
        ..plan(Output::Text("1. Route\n2. Test".into()), &[])
    };
    let gate = Stage {
        detail: Detail::Human {
            question: "Ship it?".into(),
            answer: "[N] Not yet".into(),
            text: Some("rename it first".into()),
        },
        ..Stage::new("gate", Status::Succeeded)
    };
    let checks = Stage {
        detail: Detail::Parallel {
            branches: vec![
                branch("lint", Status::Succeeded, Output::Text("clean\n".into())),
                branch("audit", Status::Failed, Output::None),
            ],
        },
        ..Stage::new("checks", Status::PartiallySucceeded)
    };
    let lines = (1..=60).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    let test = Stage { visit: 2, ..command("test", &lines, "error: ``` unclosed\n", 101) };
    let wait = Stage::new("pause", Status::Skipped);
    run(
        vec![plan, gate, checks, test, wait],
        json!({"human.gate.text": "rename it first", "parallel.results": [], "human.gate.label": "Not yet",
            "list": [1, {"a": "b"}], "notes": "one\ntwo ```\n", "number": 7}),
    )
}
