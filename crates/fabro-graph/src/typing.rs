use fabro_types::{Diagnostic, Span, excerpt};

use crate::ast::Literal;
use crate::schema::{Attribute, ValueType};
use crate::value::Value;
use fabro_types::NodeKind;

/// The value as the type the schema asks for, so that reading it later cannot fail. Numbers,
/// durations and booleans may be written in quotes. An empty value is a warning: it counts as
/// absent.
pub(crate) fn typed(attribute: &Attribute, literal: &Literal) -> Result<Value, Diagnostic> {
    let value = &literal.value;
    let is_text = attribute.value == ValueType::Text && attribute.name != "type";
    if !is_text && value.text().is_some_and(|text| text.trim().is_empty()) {
        let message = format!("`{}` is empty, so its default counts", attribute.name);
        return Err(Diagnostic::warning("attribute-value", literal.span, message)
            .with_fix("take it out, or give it a value"));
    }
    let found = match attribute.value {
        ValueType::Text if attribute.name == "type" => return handler_type(literal),
        ValueType::Text | ValueType::Node => Some(match value.text() {
            Some(_) => value.clone(),
            None => Value::String(literal.source().into()),
        }),
        ValueType::Int { min } => value.to_int().filter(|int| *int >= min).map(Value::Int),
        ValueType::Float => {
            value.to_float().filter(|float| *float >= 0.0).map(|float| number(value, float))
        }
        ValueType::Number => value.to_float().map(|float| number(value, float)),
        ValueType::Bool => value.to_bool().map(Value::Bool),
        ValueType::Duration => value.to_duration().map(|_| unquoted(value)),
        ValueType::Words(words) => {
            words.contains(&value.as_text().trim()).then(|| value.as_text().trim().into())
        }
    };
    found.ok_or_else(|| {
        let message =
            format!("`{}` is {}, not {}", attribute.name, attribute.value, shown(literal));
        Diagnostic::error("attribute-value", literal.span, message).with_fix(fix(attribute))
    })
}

/// A number out of its quotes, whole where it is written so.
fn number(value: &Value, float: f64) -> Value {
    match unquoted(value) {
        number @ (Value::Int(_) | Value::Float(_)) => number,
        _ => Value::Float(float),
    }
}

/// A number or duration out of its quotes.
fn unquoted(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from_word(text.trim()),
        value => value.clone(),
    }
}

fn handler_type(literal: &Literal) -> Result<Value, Diagnostic> {
    let name = literal.value.as_text();
    if NodeKind::from_type(name.trim()).is_some() {
        return Ok(name.trim().into());
    }
    if foreign_type(name.trim(), literal.span).is_some() {
        // Reported once a file.
        return Ok(literal.value.clone());
    }
    let types: Vec<&str> = NodeKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let message = format!("no handler is called {}, so the shape decides", shown(literal));
    Err(Diagnostic::warning("unknown-type", literal.span, message)
        .with_fix(format!("use one of {}", types.join(", "))))
}

/// A handler that other engines have and we do not: what is lost without it.
pub(crate) fn foreign_type(name: &str, span: Span) -> Option<Diagnostic> {
    let lost = match name {
        "stack.observe" => "nothing observes a running sub-workflow here",
        "stack.steer" => "nothing steers a running sub-workflow here",
        _ => return None,
    };
    let message = format!("no handler is called `{name}`, so the shape decides: {lost}");
    let fix =
        "run the sub-workflow with type=stack.manager_loop, and end it by manager.stop_condition";
    Some(Diagnostic::warning("unknown-type", span, message).with_fix(fix))
}

fn fix(attribute: &Attribute) -> String {
    let name = attribute.name;
    match attribute.value {
        ValueType::Int { min } => format!("write a whole number, such as {name}={}", min.max(3)),
        ValueType::Float | ValueType::Number => format!("write a number, such as {name}=2.5"),
        ValueType::Bool => format!("write {name}=true or {name}=false"),
        ValueType::Duration => {
            format!("write a whole number and ms, s, m, h or d, such as {name}=30s")
        }
        ValueType::Words(words) => format!("use one of {}", words.join(", ")),
        ValueType::Text | ValueType::Node => format!("write {name}=\"…\""),
    }
}

/// The value as written, at most 40 characters of it.
fn shown(literal: &Literal) -> String {
    let source = literal.source();
    format!("`{}`", excerpt(&source, 40).replace('\n', "\\n"))
}
