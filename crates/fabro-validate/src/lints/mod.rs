//! One lint a file. Each adds what it finds; the caller sorts.

mod condition_syntax;
mod exit_node;
mod start_node;
mod target_node;

use fabro_graph::Diagnostic;

use crate::checking::Checking;

type Lint = fn(&Checking<'_>, &mut Vec<Diagnostic>);

const LINTS: &[Lint] =
    &[condition_syntax::check, exit_node::check, start_node::check, target_node::check];

pub(crate) fn run(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for lint in LINTS {
        lint(checking, findings);
    }
}
