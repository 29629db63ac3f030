//! An example of each attribute, as it stands in a file.

use crate::schema::{Attribute, Place, ValueType};

/// Statements that use an attribute, by its name.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &str)] = &[
    ("acp.command", r#"code [backend=acp, acp.command="gemini --acp", prompt="Do it"]"#),
    ("acp.config", r#"code [backend=acp, acp.command="agent", acp.config="{\"mode\": \"code\"}", prompt="Do it"]"#),
    ("allow_partial", r#"collect [prompt="Collect what you find", timeout=10m, allow_partial=true]"#),
    ("as", r#"each [shape=component, for_each="output.plan.files", as=file]"#),
    ("auto_status", r#"tidy [shape=parallelogram, script="make tidy", auto_status=true]"#),
    ("class", r#"plan [prompt="Plan it", class="hard, long"]"#),
    ("condition", r#"test -> fix [condition="outcome=fail && context.tries < 3"]"#),
    ("context_tool", r#"plan [prompt="Plan it, and write the plan down", context_tool=write]"#),
    ("default_fidelity", "graph [default_fidelity=summary:high]"),
    ("default_max_retries", "graph [default_max_retries=2]"),
    ("default_model", "graph [default_model=claude-sonnet-4-5]"),
    ("default_provider", "graph [default_model=claude-sonnet-4-5, default_provider=anthropic]"),
    ("default_thread", "graph [default_fidelity=full, default_thread=main]"),
    ("duration", "pause [shape=insulator, duration=30s]"),
    ("env.NAME", r#"build [shape=parallelogram, script="make", env.TARGET="{{ inputs.target }}"]"#),
    ("fallback_retry_target", r#"test [shape=parallelogram, script="make test", retry_target=fix, fallback_retry_target=plan]"#),
    ("fallbacks", r#"plan [prompt="Plan it", fallbacks="openai, gemini/gemini-2.5-pro"]"#),
    ("fidelity", r#"review [prompt="Review it", fidelity=full, thread_id=main]"#),
    ("for_each", r#"each [shape=component, for_each="output.plan.files", max_parallel=8]"#),
    ("freeform", r#"ask -> note [label="Something else", freeform=true]"#),
    ("goal", r#"goal="Make the tests pass""#),
    ("goal_gate", r#"test [shape=parallelogram, script="make test", goal_gate=true, retry_target=fix]"#),
    ("human.default_choice", r#"ask [shape=hexagon, label="Release it?", timeout=1h, human.default_choice=no]"#),
    ("import", r#"audit [import="./audit.fabro"]"#),
    ("inputs.KEY", r#"child [shape=house, stack.child_workflow="audit.fabro", inputs.repo="{{ inputs.repo }}"]"#),
    ("isolation", "attempts [shape=component, isolation=worktree]"),
    ("join_policy", "checks [shape=component, join_policy=quorum, quorum=2]"),
    ("label", r#"ask -> exit [label="[Y] Yes"]"#),
    ("language", r#"count [shape=parallelogram, language=python, script="print(1 + 1)"]"#),
    ("loop_restart", "review -> plan [loop_restart=true]"),
    ("loop_restart_signature_limit", "graph [loop_restart_signature_limit=5]"),
    ("manager.max_cycles", r#"child [shape=house, stack.child_workflow="audit.fabro", manager.poll_interval=1m, manager.max_cycles=30]"#),
    ("manager.poll_interval", r#"child [shape=house, stack.child_workflow="audit.fabro", manager.poll_interval=1m, manager.max_cycles=30]"#),
    ("manager.stop_condition", r#"child [shape=house, stack.child_workflow="audit.fabro", manager.stop_condition="context.found >= 10"]"#),
    ("max_cost", "graph [max_cost=2.5]"),
    ("max_items", r#"each [shape=component, for_each="output.plan.files", max_items=50]"#),
    ("max_node_visits", "graph [max_node_visits=10]"),
    ("max_parallel", "checks [shape=component, max_parallel=8]"),
    ("max_retries", r#"fetch [shape=parallelogram, script="curl -f https://example.com", max_retries=3]"#),
    ("max_tokens", r#"sum_up [shape=tab, prompt="Sum it up", max_tokens=500]"#),
    ("max_tokens_total", "graph [max_tokens_total=2000000]"),
    ("max_turns", r#"code [prompt="Do it", max_turns=50]"#),
    ("max_visits", r#"fix [prompt="Fix it", max_visits=5]"#),
    ("memory", "graph [memory=turns]"),
    ("merge", "collect [shape=tripleoctagon, merge=all]"),
    ("merge_stderr", r#"build [shape=parallelogram, script="cargo build", merge_stderr=true]"#),
    ("model", r#"plan [prompt="Plan it", model=claude-opus-4-5]"#),
    ("model_stylesheet", r#"model_stylesheet="* { model: claude-sonnet-4-5; } .hard { reasoning_effort: high; }""#),
    ("on_failure", r#"lint [shape=parallelogram, script="make lint", on_failure=continue]"#),
    ("on_unavailable", r#"plan [prompt="Plan it", on_unavailable=fail]"#),
    ("output_retries", r#"score [shape=tab, prompt="Score it", output_schema="@score.json", output_retries=4]"#),
    ("output_schema", r#"score [shape=tab, prompt="Score it", output_schema="@score.json"]"#),
    ("permissions", r#"review [prompt="Review it", permissions=read-only]"#),
    ("project_memory", r#"judge [prompt="Judge the text alone", project_memory=false]"#),
    ("prompt", r#"plan [prompt="@prompts/plan.md"]"#),
    ("provider", r#"plan [prompt="Plan it", model=gpt-5.2, provider=openai]"#),
    ("question_type", r#"ask [shape=hexagon, label="Release it?", question_type=yes_no]"#),
    ("quorum", "checks [shape=component, join_policy=quorum, quorum=2]"),
    ("rag", r#"plan [prompt="Plan it", rag="docs/**/*.md"]"#),
    ("rankdir", "rankdir=LR"),
    ("reason", r#"gave_up [shape=Msquare, status=failed, reason="{{ context.last_stage }} found no solution"]"#),
    ("reasoning_effort", r#"plan [prompt="Plan it", reasoning_effort=high]"#),
    ("retry_policy", r#"fetch [shape=parallelogram, script="make fetch", retry_policy=patient]"#),
    ("retry_target", r#"test [shape=parallelogram, script="make test", goal_gate=true, retry_target=fix]"#),
    ("script", r#"test [shape=parallelogram, script="cargo test"]"#),
    ("selection", "pick [shape=diamond, selection=random]"),
    ("shape", r#"test [shape=parallelogram, script="cargo test"]"#),
    ("speed", r#"plan [prompt="Plan it", speed=fast]"#),
    ("stack.child_dot_source", r#"child [shape=house, stack.child_dot_source="digraph { start -> plan -> exit }"]"#),
    ("stack.child_workflow", r#"child [shape=house, stack.child_workflow="audit.fabro"]"#),
    ("stall_timeout", "graph [stall_timeout=10m]"),
    ("status", r#"gave_up [shape=Msquare, status=failed, reason="The tests still fail"]"#),
    ("thread_id", r#"review [prompt="Review it", fidelity=full, thread_id=main]"#),
    ("stdin_source", r#"rate [shape=parallelogram, script="jq .score", stdin_source="context.response.review"]"#),
    ("timeout", r#"test [shape=parallelogram, script="cargo test", timeout=15m]"#),
    ("tools", r#"review [prompt="Review it", tools="read_file, grep"]"#),
    ("type", r#"test [type=command, script="cargo test"]"#),
    ("weight", "plan -> review [weight=2]"),
];

impl Attribute {
    /// A statement that uses it: the one written for it, else its name with a value of its type.
    pub fn example(&self) -> String {
        let written = EXAMPLES.iter().find(|(name, _)| *name == self.name);
        if let Some((_, example)) = written {
            return (*example).to_owned();
        }
        let value = match self.value {
            _ if !self.default.is_empty() => self.default,
            ValueType::Text => "\"...\"",
            ValueType::Int { .. } | ValueType::Float | ValueType::Number => "3",
            ValueType::Bool => "true",
            ValueType::Duration => "15m",
            ValueType::Words(words) => words.first().copied().unwrap_or("\"\""),
            ValueType::Node => "plan",
        };
        let element = match self.places.first() {
            Some(Place::Node) => "plan",
            Some(Place::Edge) => "plan -> review",
            Some(Place::Graph) | None => "graph",
        };
        format!("{element} [{}={value}]", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workflow;
    use crate::schema::{ATTRIBUTES, find_anywhere};

    #[test]
    fn every_example_is_of_an_attribute_and_has_it() {
        for (name, _) in EXAMPLES {
            assert!(find_anywhere(name).is_some(), "{name}");
        }
        for attribute in ATTRIBUTES {
            let example = attribute.example();
            let source = format!("digraph {{ start -> plan -> exit; fix; no; note; {example} }}");
            let workflow = Workflow::from_source("w", &source).unwrap();
            assert_eq!(workflow.findings(), [], "{example}");
            let is_it =
                |name: &str| find_anywhere(name).is_some_and(|it| it.name == attribute.name);
            let has_it = workflow.written_attrs().any(|(_, attr)| is_it(&attr.name));
            assert!(has_it || attribute.name == "import", "{example}");
        }
    }
}
