//! Values in scripts, of the shell and of Python.

use std::collections::BTreeSet;

use crate::misplaced::Misplaced;
use crate::parse::{Formula, FormulaKind, Part};
use crate::shell::{self, VALUE, Value};
use crate::{Mode, RenderError, SyntaxError, python_code};

/// The script with its values, which stand at the [`VALUE`]s of the text.
pub(crate) fn fill(
    text: &str,
    values: &[(&Formula, String)],
    mode: Mode,
) -> Result<String, RenderError> {
    let unquotable = |formula: &Formula, why: &Misplaced| RenderError::Unquotable {
        expression: formula.text.clone(),
        place: why.place.to_string(),
        fix: why.fix(&formula.text, &variable(formula)),
    };
    let marks = memchr::memchr_iter(VALUE as u8, text.as_bytes()).count();
    if marks != values.len() {
        return Err(RenderError::NulInScript);
    }
    let shown: Vec<_> = values
        .iter()
        .map(|(formula, text)| Value {
            text,
            is_numeric: formula.kind == FormulaKind::Number,
            is_literal: formula.kind == FormulaKind::Literal,
        })
        .collect();
    let filled = match mode {
        Mode::Python => python_code::fill(text, &shown),
        _ => shell::fill(text, &shown),
    };
    filled.map_err(|(at, why)| unquotable(values[at].0, &why))
}

/// The script with a [`VALUE`] for each value, and a plain word for code that goes in as it is.
pub(crate) fn skeleton(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Literal(literal) => text.push_str(literal),
            Part::DollarGoal => text.push_str("$goal"),
            Part::Expression(formula) if formula.kind == FormulaKind::Raw => text.push('x'),
            Part::Expression(_) => text.push(VALUE),
        }
    }
    text
}

/// The values at places that accept no value.
pub(crate) fn misplaced(parts: &[Part], mode: Mode) -> Vec<SyntaxError> {
    let text = skeleton(parts);
    let formulas: Vec<&Formula> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Expression(formula) if formula.kind != FormulaKind::Raw => Some(formula),
            _ => None,
        })
        .collect();
    let reasons: Vec<Option<Misplaced>> = match mode {
        Mode::Shell => shell::read(&text).places.into_iter().map(Result::err).collect(),
        Mode::Python => python_code::read(&text).into_iter().map(Result::err).collect(),
        _ => return Vec::new(),
    };
    let mut errors = Vec::new();
    for (formula, why) in formulas.into_iter().zip(reasons) {
        let Some(why) = why else { continue };
        let fits = match formula.kind {
            FormulaKind::Number => why.takes_numbers(),
            FormulaKind::Literal => mode == Mode::Python && python_code::takes_literals(&why),
            _ => false,
        };
        if !fits {
            let message = format!("`{}` cannot stand {}", formula.text, why.place);
            let fix = why.fix(&formula.text, &variable(formula));
            errors.push(SyntaxError::new(message, formula.span).with_fix(fix));
        }
    }
    errors
}

/// The variables that a shell script evaluates; `None` when it cannot be followed.
pub(crate) fn evaluated(text: &str) -> Option<BTreeSet<String>> {
    let mut reading = shell::read(text);
    reading.evaluated.append(&mut reading.commands);
    (!reading.is_unclear).then_some(reading.evaluated)
}

/// A name for the variable of this value: the last part of what it reads.
fn variable(formula: &Formula) -> String {
    let text = formula.text.trim_start_matches('(');
    let end =
        text.find(|c: char| !c.is_ascii_alphanumeric() && !"_.".contains(c)).unwrap_or(text.len());
    let last = text[..end].rsplit('.').find(|part| !part.is_empty()).unwrap_or("value");
    let name: String = last.to_ascii_uppercase();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("VALUE_{name}") }
}
