use std::sync::Arc;

use fabro_template::{Mode, ReadTarget, RenderError, SyntaxError, Template, Values};
use fabro_types::Span;
use serde_json::{Map, Value};

/// Why a goal cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the goal cannot be rendered: {message} ({fix})")]
pub struct GoalError {
    /// What is wrong, a fragment without a full stop.
    pub message: String,
    /// Where, in bytes of the text of the goal.
    pub span: Span,
    /// What to do.
    pub fix: String,
}

const READ_AN_INPUT: &str = "write the text, or read an input: {{ inputs.NAME }}";

/// A goal with `{{ inputs.… }}` filled in; `$goal` is text there.
///
/// # Errors
/// It is not a template, or reads what does not exist: an input that was not given, the goal itself, or the
/// context, which is empty before the first stage.
pub fn render_goal(goal: &str, inputs: &Map<String, Value>) -> Result<String, GoalError> {
    let template = Template::parse(goal).map_err(not_a_template)?;
    if let Some(read) = template.reads().iter().find(|read| read.target == ReadTarget::Goal) {
        let message = "a goal cannot read `goal`, which is itself".to_owned();
        return Err(GoalError { message, span: read.span, fix: READ_AN_INPUT.to_owned() });
    }
    let inputs = inputs.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let values = Values { inputs, ..Values::default() };
    template.render(Arc::new(values), Mode::Text).map_err(|error| not_rendered(&template, error))
}

fn not_a_template(error: SyntaxError) -> GoalError {
    let SyntaxError { message, span, fix, .. } = error;
    let fix =
        fix.unwrap_or_else(|| "read inputs as {{ inputs.NAME }}, with filters of Jinja".into());
    GoalError { message, span, fix }
}

fn not_rendered(template: &Template, error: RenderError) -> GoalError {
    let (target, message, fix) = match error {
        RenderError::MissingInput { name } => {
            let root = name.split('.').next().unwrap_or(&name);
            let fix = format!("set `{root}` under [run.inputs], or as an input of the run");
            let message = format!("the input `{name}` is not given");
            (Some(ReadTarget::Input(name)), message, fix)
        }
        RenderError::MissingContext { key } => {
            let message = format!("`{key}` is read in the goal, before any stage can write it");
            (Some(ReadTarget::Context(key)), message, READ_AN_INPUT.to_owned())
        }
        error => (None, error.to_string(), "correct the goal, or what it reads".to_owned()),
    };
    let read = template.reads().iter().find(|read| Some(&read.target) == target.as_ref());
    GoalError { message, span: read.map_or_else(Span::default, |read| read.span), fix }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(goal: &str, expect: &str) {
        let inputs = json!({"who": "world", "repo": {"name": "x"}});
        let said = match render_goal(goal, inputs.as_object().unwrap()) {
            Ok(text) => text,
            Err(GoalError { message, span, fix }) => {
                format!("{}: {message} ({fix})", &goal[span.start..span.end])
            }
        };
        assert_eq!(said, expect);
    }

    #[test]
    fn a_goal_reads_inputs_and_nothing_else() {
        check("Greet {{ inputs.who }} of {{ inputs.repo.name }}", "Greet world of x");
        check("Print $goal here, not {{ other }}", "Print $goal here, not {{ other }}");
        check("{{ context.a | default(inputs.who) }}", "world");
        let itself = "goal: a goal cannot read `goal`, which is itself (write the text, or read an input: {{ inputs.NAME }})";
        check("Print {{ goal }} here", itself);
        check("Print {{ goal | default('') }} here", itself);
        check(
            "Fix {{ inputs.q.r }}",
            "inputs.q.r: the input `q.r` is not given (set `q` under [run.inputs], or as an input of the run)",
        );
        check(
            "Fix {{ context.a }}",
            "context.a: `a` is read in the goal, before any stage can write it (write the text, or read an input: {{ inputs.NAME }})",
        );
        check("Fix {{ inputs.q", "{{: `{{` is not closed (add `}}`)");
        check(
            "Fix {{ inputs.who | nosuch }}",
            "nosuch: there is no filter `nosuch` (read inputs as {{ inputs.NAME }}, with filters of Jinja)",
        );
    }
}
