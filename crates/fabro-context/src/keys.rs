//! Well-known keys, and who may write which.

pub use fabro_types::key_refusal as refusal;

/// The status, or custom word, of the last completed stage.
pub const OUTCOME: &str = "outcome";
/// The class of the last failure.
pub const FAILURE_CLASS: &str = "failure_class";
/// The signature of the last failure.
pub const FAILURE_SIGNATURE: &str = "failure_signature";
/// The label the last stage asked for; empty when it asked for none.
pub const PREFERRED_LABEL: &str = "preferred_label";
/// The running node.
pub const CURRENT_NODE: &str = "current_node";
/// The node whose stage completed last, conditional nodes aside.
pub const LAST_STAGE: &str = "last_stage";
/// The first 200 characters of the last model response.
pub const LAST_RESPONSE: &str = "last_response";
/// What a command wrote to its standard output, without trailing newlines.
pub const COMMAND_OUTPUT: &str = "command.output";
/// What a command wrote to its standard error, without trailing newlines.
pub const COMMAND_STDERR: &str = "command.stderr";
/// A command's exit code.
pub const COMMAND_EXIT_CODE: &str = "command.exit_code";
/// The key of the option a person chose, or `freeform`.
pub const HUMAN_SELECTED: &str = "human.gate.selected";
/// The label of the option a person chose.
pub const HUMAN_LABEL: &str = "human.gate.label";
/// The question that a person was asked, where the gate's label has templates.
pub const HUMAN_QUESTION: &str = "human.gate.question";
/// What a person typed.
pub const HUMAN_TEXT: &str = "human.gate.text";
/// The result of each branch of the last fan-out.
pub const PARALLEL_RESULTS: &str = "parallel.results";
/// What each branch of the last fan-out has made.
pub const PARALLEL_OUTPUTS: &str = "parallel.outputs";
/// How many branches the last fan-out had.
pub const PARALLEL_COUNT: &str = "parallel.branch_count";
/// The place of an element in the list of a fan-out, from 0.
pub const ITEM_INDEX: &str = "item_index";
/// The branch a fan-in chose.
pub const FAN_IN_BEST_ID: &str = "parallel.fan_in.best_id";
/// The status of that branch.
pub const FAN_IN_BEST_OUTCOME: &str = "parallel.fan_in.best_outcome";
/// The commit of that branch, when it has one.
pub const FAN_IN_BEST_HEAD_SHA: &str = "parallel.fan_in.best_head_sha";
/// True where conversations continue in the stages that start first after a resume.
pub const RESUME_THREADS: &str = "internal.resume_threads";
/// The run's id.
pub const RUN_ID: &str = "internal.run_id";
/// The working directory.
pub const WORK_DIR: &str = "internal.work_dir";
/// The fidelity of the current node.
pub const FIDELITY: &str = "internal.fidelity";
/// The thread of the current node, or null.
pub const THREAD_ID: &str = "internal.thread_id";
/// How many times the current node has been visited.
pub const NODE_VISIT_COUNT: &str = "internal.node_visit_count";
/// Before a node's id: how many retries it used.
pub const RETRY_COUNT_PREFIX: &str = "internal.retry_count.";
/// Before a node's id: the full text of its model response.
pub const RESPONSE_PREFIX: &str = "response.";
/// Before a node's id: its validated output.
pub const OUTPUT_PREFIX: &str = "output.";
/// Before a node's id: the final context of its sub-workflow.
pub const CHILD_PREFIX: &str = "child.";
/// Before a graph attribute's name.
pub const GRAPH_PREFIX: &str = "graph.";
/// Before what the engine keeps for itself.
pub const INTERNAL_PREFIX: &str = "internal.";
/// Before what a human gate writes.
pub const GATE_PREFIX: &str = "human.gate.";
/// Before what a command writes.
pub const COMMAND_PREFIX: &str = "command.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_may_not_forge_what_handlers_write() {
        for key in [OUTCOME, COMMAND_EXIT_CODE, "response.plan", "last_stage", "failure_class", ""]
        {
            assert!(refusal(key).is_some(), "{key}");
        }
        for key in ["context.outcome", "context.command.exit_code", "context.last_stage"] {
            assert!(refusal(key).is_some(), "{key}");
        }
        for key in ["human", "command", "parallel", "internal", "graph", "output", "response"] {
            let reason =
                format!("`{key}` and the keys below it are written by the engine and its handlers");
            assert_eq!(
                refusal(key),
                Some(reason.clone()),
                "an object there is read by dotted keys"
            );
            assert_eq!(refusal(&format!("context.{key}")), Some(reason));
        }
        for key in ["child", "context.child", "parallel.results", "human.gate", "context"] {
            assert!(refusal(key).is_some(), "{key}");
        }
        for key in ["humanity", "current", "last", "failure", "children", "contexts", "my.human"] {
            assert_eq!(refusal(key), None, "{key}");
        }
        for key in ["tests_passed", "outcomes", "commander", "lastly", "score.total", "context.x"] {
            assert_eq!(refusal(key), None, "{key}");
        }
    }
}
