use fabro_graph::{NodeKind, Origin, schema};

use super::script_and_prompt::has_script_and_prompt;
use crate::checking::Checking;
use crate::findings::Findings;

/// Attributes of nodes that ask a model.
const OF_MODELS: &[&str] = &[
    "acp.command",
    "acp.config",
    "context_tool",
    "output_retries",
    "output_schema",
    "permissions",
    "rag",
    "tools",
];

/// Attributes about a model's answer or tools, written on a node that asks no model, and scripts on one
/// that runs none. What comes from
/// the defaults of a scope is meant for others there. Nor does a gate have a prompt: it asks its label.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes() {
        let asks_model = node.kind.is_llm() || node.kind == NodeKind::FanIn;
        let has_both = has_script_and_prompt(node);
        let own = node.attrs.own().filter(|attr| attr.origin == Origin::Own);
        let own = own.filter(|attr| !(has_both && matches!(&*attr.name, "prompt" | "script")));
        for attr in own {
            let is_input = schema::input_name(&attr.name).is_some();
            let (why, fix) = if is_input && node.kind != NodeKind::ManagerLoop {
                ("runs no sub-workflow", "write it on a stack.manager_loop node (shape=house)")
            } else if schema::env_name(&attr.name).is_some() {
                if node.kind == NodeKind::Command {
                    continue;
                }
                ("runs no script", "write it on a command (shape=parallelogram)")
            } else if matches!(&*attr.name, "as" | "max_items") && node.for_each().is_none() {
                ("has no list", "write it on a parallel node (shape=component) with for_each")
            } else if &*attr.name == "isolation" && node.kind != NodeKind::Parallel {
                ("begins no branches", "write it on a parallel node (shape=component)")
            } else if &*attr.name == "merge" && node.kind != NodeKind::FanIn {
                ("joins no branches", "write it on a fan-in (shape=tripleoctagon)")
            } else if matches!(&*attr.name, "status" | "reason") && node.kind != NodeKind::Exit {
                ("does not end the run", "write it on an exit (shape=Msquare)")
            } else if matches!(&*attr.name, "show" | "review_target")
                && node.kind != NodeKind::Human
            {
                ("asks no person", "write it on a human node (shape=hexagon)")
            } else if matches!(&*attr.name, "merge_stderr" | "stdin_source")
                && node.kind != NodeKind::Command
            {
                ("runs no script", "write it on a command (shape=parallelogram)")
            } else if &*attr.name == "output_schema" && node.kind == NodeKind::Command {
                continue;
            } else if &*attr.name == "script" && node.kind != NodeKind::Command {
                ("runs no script", "use shape=parallelogram for a command")
            } else if asks_model {
                continue;
            } else if OF_MODELS.contains(&&*attr.name) {
                (
                    "asks no model",
                    "remove it, or make the node an agent (shape=box) or a prompt (shape=tab)",
                )
            } else if node.kind == NodeKind::Human && &*attr.name == "prompt" {
                ("asks its label", "write the question as the node's label")
            } else if node.kind == NodeKind::Command && &*attr.name == "prompt" {
                ("runs a script", "remove it, or use shape=box for an agent")
            } else if matches!(node.kind, NodeKind::Conditional | NodeKind::Wait)
                && &*attr.name == "prompt"
            {
                ("asks no model", "remove it, or make the node an agent (shape=box)")
            } else {
                continue;
            };
            let article = if node.kind.as_str().starts_with(['a', 'e']) { "an" } else { "a" };
            let message = format!(
                "`{}` has no effect on `{}`, {article} {} node, which {why}",
                attr.written, node.id, node.kind
            );
            findings.warning("without-effect", attr.key_span, message, fix);
        }
    }
    for edge in checking.workflow.edges() {
        let from = checking.workflow.node(edge.from);
        let texts = ["human.description", "human.preview"].map(|name| edge.attrs.get(name));
        for attr in texts.into_iter().flatten().filter(|_| from.kind != NodeKind::Human) {
            let message = format!(
                "`{}` has no effect on an edge of `{}`, which asks no person",
                attr.written, from.id
            );
            let fix = "write it on an edge of a human node (shape=hexagon)";
            findings.warning("without-effect", attr.key_span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_gate_asks_its_label() {
        insta::assert_snapshot!(reported("without-effect", r#"node [prompt=x]; start -> a -> exit; a [shape=hexagon, prompt="Ship it?"]"#), @r"
        1:68 warning: `prompt` has no effect on `a`, a human node, which asks its label
          at: prompt
          fix: write the question as the node's label
        ");
        insta::assert_snapshot!(reported("without-effect", r#"node [prompt=x]; start -> a -> exit; a [shape=hexagon, label="Ship it?"]"#), @"nothing");
    }

    #[test]
    fn only_an_exit_has_a_status_and_only_a_gate_shows_values() {
        insta::assert_snapshot!(reported("without-effect", "start -> a -> exit [human.preview=x]; a [prompt=x, status=failed, show=last]; exit [status=failed]"), @r"
        1:33 warning: `human.preview` has no effect on an edge of `a`, which asks no person
          at: human.preview
          fix: write it on an edge of a human node (shape=hexagon)
        1:33 warning: `human.preview` has no effect on an edge of `start`, which asks no person
          at: human.preview
          fix: write it on an edge of a human node (shape=hexagon)
        1:64 warning: `status` has no effect on `a`, an agent node, which does not end the run
          at: status
          fix: write it on an exit (shape=Msquare)
        1:79 warning: `show` has no effect on `a`, an agent node, which asks no person
          at: show
          fix: write it on a human node (shape=hexagon)
        ");
    }

    #[test]
    fn commands_take_output_schema_and_stdin_source() {
        insta::assert_snapshot!(reported("without-effect", "start -> a -> b -> exit; a [prompt=x, stdin_source=goal, merge_stderr=true]; b [shape=parallelogram, script=x, output_schema=routing, output_retries=1]"), @r"
        1:51 warning: `stdin_source` has no effect on `a`, an agent node, which runs no script
          at: stdin_source
          fix: write it on a command (shape=parallelogram)
        1:70 warning: `merge_stderr` has no effect on `a`, an agent node, which runs no script
          at: merge_stderr
          fix: write it on a command (shape=parallelogram)
        1:147 warning: `output_retries` has no effect on `b`, a command node, which asks no model
          at: output_retries
          fix: remove it, or make the node an agent (shape=box) or a prompt (shape=tab)
        ");
    }

    #[test]
    fn elements_are_of_a_list() {
        insta::assert_snapshot!(reported("without-effect", "start -> a -> p -> b -> f -> exit; a [prompt=x, as=file]; p [shape=component, max_items=3]; f [shape=tripleoctagon]"), @r"
        1:61 warning: `as` has no effect on `a`, an agent node, which has no list
          at: as
          fix: write it on a parallel node (shape=component) with for_each
        1:91 warning: `max_items` has no effect on `p`, a parallel node, which has no list
          at: max_items
          fix: write it on a parallel node (shape=component) with for_each
        ");
        insta::assert_snapshot!(reported("without-effect", r#"start -> p -> b -> f -> exit; p [shape=component, for_each="[1]", as=file, max_items=3]; f [shape=tripleoctagon]"#), @"nothing");
    }

    #[test]
    fn scripts_run_in_commands_and_prompts_in_agents() {
        insta::assert_snapshot!(reported("without-effect", "start -> a -> b -> exit; a [shape=box, script=make]; b [shape=parallelogram, script=x, prompt=y]"), @r"
        1:52 warning: `script` has no effect on `a`, an agent node, which runs no script
          at: script
          fix: use shape=parallelogram for a command
        ");
        insta::assert_snapshot!(reported("without-effect", "start -> a -> b -> exit; a [shape=box, env.A=1]; b [shape=parallelogram, script=x, env.B=2]"), @r"
        1:52 warning: `env.A` has no effect on `a`, an agent node, which runs no script
          at: env.A
          fix: write it on a command (shape=parallelogram)
        ");
        insta::assert_snapshot!(reported("without-effect", "node [script=make]; start -> a -> b -> exit; a [prompt=y]; b [shape=parallelogram]"), @r"
        1:61 warning: `prompt` has no effect on `a`, a command node, which runs a script
          at: prompt
          fix: remove it, or use shape=box for an agent
        ");
    }

    #[test]
    fn only_a_command_runs_a_script() {
        insta::assert_snapshot!(reported("without-effect", r#"start -> g -> d -> w -> p -> {a; b} -> f -> exit; exit [script="exit 3"]; g [shape=hexagon, script=x]; d [shape=diamond, prompt=y]; w [shape=insulator, duration=1s, script=x]; p [shape=component, script=x]; f [shape=tripleoctagon, script=x]; a [prompt=x]; b [prompt=x]"#), @r"
        1:69 warning: `script` has no effect on `exit`, an exit node, which runs no script
          at: script
          fix: use shape=parallelogram for a command
        1:105 warning: `script` has no effect on `g`, a human node, which runs no script
          at: script
          fix: use shape=parallelogram for a command
        1:134 warning: `prompt` has no effect on `d`, a conditional node, which asks no model
          at: prompt
          fix: remove it, or make the node an agent (shape=box)
        1:178 warning: `script` has no effect on `w`, a wait node, which runs no script
          at: script
          fix: use shape=parallelogram for a command
        1:209 warning: `script` has no effect on `p`, a parallel node, which runs no script
          at: script
          fix: use shape=parallelogram for a command
        1:244 warning: `script` has no effect on `f`, a parallel.fan_in node, which runs no script
          at: script
          fix: use shape=parallelogram for a command
        ");
        insta::assert_snapshot!(reported("without-effect", "node [script=make]; start -> d -> a -> exit; d [shape=diamond]; a [shape=parallelogram]"), @"nothing");
    }

    #[test]
    fn what_asks_no_model_takes_no_tools() {
        insta::assert_snapshot!(reported("without-effect", r#"start -> a -> exit; a [shape=parallelogram, script=x, output_schema=routing, tools="grep"]"#), @r"
        1:90 warning: `tools` has no effect on `a`, a command node, which asks no model
          at: tools
          fix: remove it, or make the node an agent (shape=box) or a prompt (shape=tab)
        ");
        insta::assert_snapshot!(reported("without-effect", "node [tools=grep]; start -> a -> b -> exit; a [shape=parallelogram, script=x]; b [output_schema=routing]"), @"nothing");
        insta::assert_snapshot!(reported("without-effect", "start -> p -> {a; b} -> f -> exit; p [shape=component]; f [shape=tripleoctagon, prompt=x, permissions=full]"), @"nothing");
    }
}
