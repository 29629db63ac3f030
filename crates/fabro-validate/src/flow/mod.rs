//! Where a run can go, and what the stages before have written by then.

mod graph;
mod keys;
mod misspelled;
mod nearest;
mod reach;
mod sub_workflow;
mod writer;

pub(crate) use graph::Flow;
pub(crate) use keys::need;
pub(crate) use misspelled::{FIELDS, Mentions};
pub(crate) use nearest::{Found, Nearest};
pub(crate) use reach::{Read, Unmet, unmet};
pub(crate) use sub_workflow::{SubWorkflows, can_write};
pub(crate) use writer::{
    Need, Writer, asks_model, element_name, has_output, may_give_directives, shares_context,
};
