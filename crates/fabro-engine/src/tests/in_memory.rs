use fabro_types::ContextPatch;

use super::{Script, now};
use crate::{RunError, run_in_memory};

/// Why a workflow does not run.
fn error(source: &str) -> String {
    let script = Script::default();
    let error = now(run_in_memory(source, script, ContextPatch::new())).unwrap_err();
    assert!(!matches!(error, RunError::Drive(_)), "{error:?}");
    error.to_string()
}

#[test]
fn a_workflow_with_errors_does_not_run() {
    let parallel = "digraph { start -> a -> exit; a [shape=component, join_policy=first_sucess, max_parallel=banana] }";
    insta::assert_snapshot!(error(parallel), @"the workflow cannot run: `join_policy` is wait_all, all_success, first_success or quorum, not `first_sucess`; `max_parallel` is a whole number from 1, not `banana`");
    let file = "digraph { start -> a -> exit; a [prompt=\"@missing.md\"] }";
    insta::assert_snapshot!(error(file), @"the workflow cannot run: `prompt` is still `@missing.md`: no files have been read");
    insta::assert_snapshot!(error("digraph { start"), @"the workflow has a syntax error: expected a node or edge, `->`, `=`, `[` or `}`, found the end");
}
