use std::sync::Arc;

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use crate::engine::{EXPRESSIONS, Root};
use crate::limited::{Limited, MAX_OUTPUT};
use crate::parse::{Formula, Part, TEMPLATE};
use crate::shell::VALUE;
use crate::text::{is_raw, text_of};
use crate::{Mode, ReadTarget, RenderError, script};

/// The most that one value may bring into a script, in bytes: what Linux takes in one argument.
const MAX_SCRIPT_VALUE: usize = 128 << 10;

/// Renders a template of ours.
pub(crate) fn parts(parts: &[Part], root: &Arc<Root>) -> Result<String, RenderError> {
    let scope = Value::from_dyn_object(Arc::clone(root));
    let is_script = matches!(root.mode, Mode::Shell | Mode::Python);
    let mut out = String::new();
    let mut values = Vec::new();
    let mut bytes = 0;
    for part in parts {
        match part {
            Part::Literal(text) => out.push_str(text),
            Part::DollarGoal if root.mode == Mode::Prompt => out.push_str(root.vars.goal()),
            Part::DollarGoal => out.push_str("$goal"),
            Part::Expression(formula) => {
                let (text, raw) = value(formula, root, &scope)?;
                if raw || !is_script {
                    out.push_str(&text);
                } else {
                    bytes += text.len();
                    out.push(VALUE);
                    values.push((formula, text));
                }
            }
        }
        if out.len() + bytes > MAX_OUTPUT {
            return Err(RenderError::OutputTooLarge { limit: MAX_OUTPUT });
        }
    }
    if values.is_empty() { Ok(out) } else { script::fill(&out, &values, root.mode) }
}

/// The value of an expression: its text, but for numbers, booleans, null, lists and maps.
pub(crate) fn json(formula: &Formula, root: &Arc<Root>) -> Result<serde_json::Value, RenderError> {
    let scope = Value::from_dyn_object(Arc::clone(root));
    evaluate(formula, root, &scope, |value| match value.kind() {
        ValueKind::None
        | ValueKind::Bool
        | ValueKind::Number
        | ValueKind::Seq
        | ValueKind::Map
        | ValueKind::Iterable
            if !is_raw(value) =>
        {
            serde_json::to_value(value)
                .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
        }
        _ => text_of(value).map(serde_json::Value::from),
    })
}

/// Runs an expression; `read` makes something of its value.
fn evaluate<T>(
    formula: &Formula,
    root: &Root,
    scope: &Value,
    read: impl FnOnce(&Value) -> Result<T, Error>,
) -> Result<T, RenderError> {
    root.begin();
    let does_without = |target: &ReadTarget| formula.optional.contains(target);
    let run = EXPRESSIONS.compile_expression(&formula.source);
    let value = run.and_then(|run| run.eval(scope.clone())).and_then(|value| read(&value));
    value.map_err(|error| root.explain(&error, || formula.text.clone(), does_without))
}

/// The text of an expression, and whether it went through `raw`.
fn value(formula: &Formula, root: &Root, scope: &Value) -> Result<(String, bool), RenderError> {
    let (text, raw) = evaluate(formula, root, scope, |value| Ok((text_of(value)?, is_raw(value))))?;
    if matches!(root.mode, Mode::Shell | Mode::Python | Mode::Variable)
        && text.len() > MAX_SCRIPT_VALUE
    {
        return Err(RenderError::ValueTooLarge {
            expression: formula.text.clone(),
            bytes: text.len(),
            limit: MAX_SCRIPT_VALUE,
            path: formula.key.as_deref().and_then(|key| root.vars.path(key)),
        });
    }
    Ok((text, raw))
}

/// Renders a template file.
pub(crate) fn jinja(
    environment: &Environment<'static>,
    root: &Arc<Root>,
) -> Result<String, RenderError> {
    if !matches!(root.mode, Mode::Text | Mode::Prompt) {
        return Err(RenderError::JinjaScript);
    }
    let mut out = Limited::default();
    let result = environment.get_template(TEMPLATE).and_then(|template| {
        template.render_captured_to(Value::from_dyn_object(Arc::clone(root)), &mut out).map(drop)
    });
    if out.is_exceeded() {
        return Err(RenderError::OutputTooLarge { limit: MAX_OUTPUT });
    }
    result.map_err(|error| {
        let line = error.line().unwrap_or(1);
        root.explain(&error, || format!("line {line}"), |_| true)
    })?;
    Ok(out.into_text())
}
