//! One lint a file. Each adds what it finds; the caller sorts and drops repetitions.

mod absolute_cd;
mod all_conditional;
mod chain_attribute;
mod child_workflow;
mod condition_operator;
mod dead_end;
mod default_choice;
mod duplicate_accelerator;
mod edge_target;
mod endless_loop;
mod exit_node;
mod failure_to_exit;
mod fan_out_join;
mod file_outside;
mod freeform_edges;
mod goal_gate_bypass;
mod goal_gate_retry;
mod isolation;
mod keyword_node_id;
mod label_condition;
mod label_template;
mod missing_attribute;
mod missing_prompt;
mod misspelled_attribute;
mod path_as_prompt;
mod quorum;
mod random_with_conditions;
mod schema_with_acp;
mod script_and_prompt;
mod script_language;
mod start_node;
mod status_label;
mod stdin_template;
mod target_node;
mod template_block;
mod template_root;
mod thread_without_full;
mod undefined_input;
mod unhandled_failure;
mod unknown_outcome;
mod unknown_shape;
mod unknown_tool;
mod unreachable_node;
mod unread_element;
mod unused_style;
mod unwritten_key;
mod without_effect;

pub use misspelled_attribute::written_instead;

use crate::checking::Checking;
use crate::findings::Findings;

type Lint = fn(&Checking<'_>, &mut Findings);

const LINTS: &[Lint] = &[
    absolute_cd::check,
    all_conditional::check,
    chain_attribute::check,
    child_workflow::check,
    condition_operator::check,
    dead_end::check,
    default_choice::check,
    duplicate_accelerator::check,
    edge_target::check,
    endless_loop::check,
    exit_node::check,
    failure_to_exit::check,
    fan_out_join::check,
    file_outside::check,
    freeform_edges::check,
    goal_gate_bypass::check,
    goal_gate_retry::check,
    isolation::check,
    keyword_node_id::check,
    label_condition::check,
    label_template::check,
    missing_attribute::check,
    missing_prompt::check,
    misspelled_attribute::check,
    path_as_prompt::check,
    quorum::check,
    random_with_conditions::check,
    schema_with_acp::check,
    script_and_prompt::check,
    script_language::check,
    start_node::check,
    stdin_template::check,
    status_label::check,
    target_node::check,
    template_block::check,
    template_root::check,
    thread_without_full::check,
    undefined_input::check,
    unhandled_failure::check,
    unknown_outcome::check,
    unknown_shape::check,
    unknown_tool::check,
    unreachable_node::check,
    unread_element::check,
    unused_style::check,
    unwritten_key::check,
    without_effect::check,
];

pub(crate) fn run(checking: &Checking<'_>, findings: &mut Findings) {
    for lint in LINTS {
        lint(checking, findings);
    }
}
