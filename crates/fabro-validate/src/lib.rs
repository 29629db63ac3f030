//! Checks a workflow before it runs: everything that would go wrong later, found where it is written.
//!
//! [`check`] reads a workflow as a run would (defaults, files, model stylesheet), then looks at it
//! with every lint: graph structure, attribute values, conditions, templates, sub-workflows, and the
//! flow of data (a condition or template that reads a context key which no stage before it can
//! write). [`prepare`] is the same reading without the lints, for a workflow that was checked when
//! its run was created: what validates, runs. Both read files and apply the model stylesheet;
//! `fabro_plan::Plan::compile` refuses a workflow with files or a stylesheet that did not come
//! through one of them.
//!
//! ```
//! use fabro_graph::MemorySources;
//! use fabro_validate::check;
//!
//! let source = r#"
//!     digraph Release {
//!         start -> test -> deploy -> exit
//!         test [shape=parallelogram, script="cargo test", on_failure=stop, retry_target=tset]
//!         deploy [prompt="Deploy the release."]
//!     }
//! "#;
//! let checked = check("release", source, &MemorySources::default(), None);
//! assert!(!checked.is_valid());
//! assert_eq!(checked.findings[0].rule, "target-node");
//! assert_eq!(checked.findings[0].fix.as_deref(), Some("did you mean `test`?"));
//! ```
//!
//! Every finding has the name of one of the [`rules`], a place in the source and, where there is one,
//! a fix. Files come through [`Sources`]; nothing here reads a disk. A sub-workflow is read with
//! [`RelativeSources`], so that its own files are found beside it.
//!
//! # Limits
//!
//! Of several syntax errors the first is reported, and nothing after it. Sub-workflows nest
//! at most 16 deep. The time taken grows with the size of the workflow; only for fan-outs that overlap
//! each other thousandfold does the data-flow analysis stop looking, and then it says nothing.

mod attrs;
mod checking;
mod family;
mod findings;
mod flow;
mod lints;
mod load;
mod near;
mod phantoms;
mod relative;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use fabro_graph::{Diagnostic, Sources, Workflow};
use fabro_plan::{Constants, Plan, PlanError, Specs};
use fabro_types::Severity;
use serde_json::{Map, Value};

pub use lints::written_instead;
pub use relative::RelativeSources;
pub use rules::{Rule, rules};

use checking::Checking;
use family::Family;
use findings::Findings;

/// What [`check`] has found out.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The workflow with defaults, files and stylesheet applied; `None` when it does not parse. It
    /// may only run when [`Checked::is_valid`].
    pub workflow: Option<Workflow>,
    /// Its attributes with their types, as far as they have no errors: see [`Specs`].
    pub specs: Option<Specs>,
    /// All findings by their place in the source, at one place errors first.
    pub findings: Vec<Diagnostic>,
    /// The inputs that a template reads without a default, here or in a sub-workflow that has the inputs of this one:
    /// a run needs a value for each.
    pub needed_inputs: BTreeSet<String>,
}

impl Checked {
    /// True when there is no error; warnings do not count.
    pub fn is_valid(&self) -> bool {
        !has_errors(&self.findings)
    }

    /// The plan of the workflow, which is not compiled again.
    ///
    /// # Errors
    /// The workflow is not valid: all errors.
    pub fn into_plan(self) -> Result<Plan, PlanError> {
        match self.workflow.zip(self.specs) {
            Some((workflow, specs)) if !has_errors(&self.findings) => {
                Plan::from_specs(workflow, specs)
            }
            _ => Err(PlanError { findings: errors(self.findings) }),
        }
    }
}

/// Checks a workflow. `name` is that of a graph without one (the file's stem); `sources` has the
/// files that it names. `inputs` are the run's; without them, reading an input is not checked.
pub fn check(
    name: &str,
    source: &str,
    sources: &dyn Sources,
    inputs: Option<&Map<String, Value>>,
) -> Checked {
    let family = Family::default();
    let mut checked = check_in(name, source, RelativeSources::new(sources, ""), inputs, &family);
    checked.needed_inputs = family.needed.into_inner();
    checked
}

/// Checks a workflow that may be inside others.
fn check_in(
    name: &str,
    source: &str,
    sources: RelativeSources<'_>,
    inputs: Option<&Map<String, Value>>,
    family: &Family,
) -> Checked {
    let constants = inputs.map(|inputs| Constants::new("", inputs));
    let read = match load::load(name, source, &sources, constants.as_ref()) {
        Ok(read) => read,
        Err(finding) => {
            return Checked {
                workflow: None,
                specs: None,
                findings: vec![finding],
                needed_inputs: BTreeSet::new(),
            };
        }
    };
    let specs = Specs::lower(&read.workflow, None);
    let mut findings = Findings(specs.findings.clone());
    lints::run(&Checking::new(&read, &specs, sources, inputs, family), &mut findings);
    read.workflow.place(&mut findings.0);
    sort(&mut findings.0);
    Checked {
        workflow: Some(read.workflow),
        specs: Some(specs),
        findings: findings.0,
        needed_inputs: BTreeSet::new(),
    }
}

/// Reads a workflow that is known to be valid: as [`check`] does, without the lints. `constants` are those of
/// the run, for a stylesheet with templates.
///
/// # Errors
/// What keeps it from being read: syntax, attribute values, missing files, the stylesheet. Warnings
/// are not among them.
pub fn prepare(
    name: &str,
    source: &str,
    sources: &dyn Sources,
    constants: Option<&Constants>,
) -> Result<Workflow, Vec<Diagnostic>> {
    let workflow =
        load::load(name, source, sources, constants).map_err(|finding| vec![finding])?.workflow;
    if !has_errors(workflow.findings()) {
        return Ok(workflow);
    }
    let mut findings = errors(workflow.findings().to_vec());
    workflow.place(&mut findings);
    sort(&mut findings);
    Err(findings)
}

fn errors(mut findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    findings.retain(|finding| finding.severity == Severity::Error);
    findings
}

fn has_errors(findings: &[Diagnostic]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// By place; at one place errors first. What scopes and chains share is found once for each of their
/// nodes and edges, and reported once.
fn sort(findings: &mut Vec<Diagnostic>) {
    findings.sort_by(|a, b| key(a).cmp(&key(b)));
    findings.dedup();
}

fn key(finding: &Diagnostic) -> impl Ord + '_ {
    let Diagnostic { rule, severity, message, span, .. } = finding;
    (span.start, std::cmp::Reverse(*severity), span.end, *rule, message)
}
