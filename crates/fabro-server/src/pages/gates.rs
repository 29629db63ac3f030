//! Gates that wait for an answer, with the form that answers them.

use askama::Template;
use fabro_events::GateOption;
use fabro_run::Gate;

use super::render;
use crate::problem::Problem;

pub(super) struct OpenGate<'a> {
    /// The page of the run and its workflow, where the page is not that of the run.
    pub(super) link: Option<(String, &'a str)>,
    pub(super) name: &'a str,
    /// Where an answer is sent; `None` for who may not answer.
    pub(super) action: Option<&'a str>,
    pub(super) question: &'a str,
    pub(super) options: &'a [GateOption],
    pub(super) freeform: bool,
}

impl<'a> OpenGate<'a> {
    pub(super) fn new(name: &'a str, gate: &'a Gate) -> Self {
        Self {
            link: None,
            name,
            action: None,
            question: &gate.question,
            options: &gate.options,
            freeform: gate.freeform,
        }
    }
}

#[derive(Template)]
#[template(path = "gates.html")]
struct Gates<'a> {
    gates: &'a [OpenGate<'a>],
}

pub(super) fn gates(gates: &[OpenGate<'_>]) -> Result<String, Problem> {
    render(&Gates { gates })
}
