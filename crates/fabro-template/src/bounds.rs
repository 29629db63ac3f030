//! Bounds on what filters make: the engine counts steps, but one step of a filter can make a text of any
//! length out of two short ones.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use crate::limited::MAX_OUTPUT;

/// The most elements of a list that a filter makes.
const MAX_ITEMS: usize = 1_000_000;

/// The most spaces that a line is indented by.
const MAX_INDENT: usize = 1_000;

/// The longest text before `~` or `+`, in bytes.
const MAX_OPERAND: usize = 8 << 20;

/// How deep values are nested at most where a filter writes or measures them.
const MAX_DEPTH: usize = 200;

/// Replaces the filters whose results may be much larger than what they are given.
pub(crate) fn bound_filters(environment: &mut Environment<'static>) {
    environment.add_function(EMITTED, |state: &mut State<'_, '_>, bytes: usize| {
        count_emitted(state, bytes).map(|()| "")
    });
    bound(environment, "replace", Value::from_function(filters::replace), check_replace);
    bound(environment, "join", Value::from_function(filters::join), check_join);
    bound(environment, "indent", Value::from_function(filters::indent), check_indent);
    bound(environment, "tojson", Value::from_function(filters::tojson), check_tojson);
    bound(environment, "format", Value::from_function(filters::format), check_format);
    bound(environment, "batch", Value::from_function(filters::batch), check_count);
    bound(environment, "slice", Value::from_function(filters::slice), check_count);
    bound(environment, "list", Value::from_function(filters::list), check_characters);
    bound(environment, "split", Value::from_function(filters::split), check_split);
    bound(environment, "lines", Value::from_function(filters::lines), check_lines);
    bound(environment, "pprint", Value::from_function(filters::pprint), check_text);
    bound(environment, "string", Value::from_function(filters::string), check_text);
    bound(environment, OPERAND, Value::from_function(|value: Value| value), check_operand);
}

/// The filter that what stands before `~` and `+` goes through: a text that is joined to itself again and
/// again has any length after a few steps.
pub(crate) const OPERAND: &str = "__operand";

/// The function that template files call in each body, with the bytes of text that it writes.
pub(crate) const EMITTED: &str = "__emitted";

/// The most bytes that a template may write in all, those that are kept in a variable or given to a
/// filter included.
const MAX_EMITTED: usize = 8 * MAX_OUTPUT;

/// How many bytes a template has written so far.
#[derive(Default)]
struct Emitted(usize);

/// Counts what a template writes.
pub(crate) fn count_emitted(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let emitted = state.get_or_insert_extension(Emitted::default());
    emitted.0 = emitted.0.saturating_add(bytes);
    if emitted.0 > MAX_EMITTED {
        let message = format!("the template writes more than {MAX_EMITTED} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(())
}

/// What a filter may be given: its value, then its arguments.
type Check = fn(&[Value], &Kwargs) -> Result<(), Error>;

fn bound(environment: &mut Environment<'static>, name: &'static str, filter: Value, check: Check) {
    environment.add_filter(name, move |state: &mut State<'_, '_>, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (given, named): (&[Value], Kwargs) = from_args(&all)?;
        check(given, &named)?;
        filter.call(state, &all)
    });
}

pub(crate) fn too_large() -> Error {
    let message = format!("the result has more than {MAX_OUTPUT} bytes");
    Error::new(ErrorKind::InvalidOperation, message)
}

fn fits(bytes: Option<usize>) -> Result<(), Error> {
    match bytes {
        Some(bytes) if bytes <= MAX_OUTPUT => Ok(()),
        _ => Err(too_large()),
    }
}

fn few_items(items: usize) -> Result<(), Error> {
    if items <= MAX_ITEMS {
        return Ok(());
    }
    let message = format!("the list has more than {MAX_ITEMS} elements");
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn check_replace(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    let [value, from, to, ..] = given else { return Ok(()) };
    let value = text(value);
    let from = text(from);
    let to = text(to);
    let found = value.matches(&*from).count();
    fits(found.checked_mul(to.len()).and_then(|more| more.checked_add(value.len())))
}

fn check_join(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    let [value, rest @ ..] = given else { return Ok(()) };
    let joiner = rest.first().map_or(0, |joiner| text(joiner).len());
    let mut size = Size::default();
    size.add(value, joiner, 0)
}

fn check_indent(given: &[Value], named: &Kwargs) -> Result<(), Error> {
    let [value, rest @ ..] = given else { return Ok(()) };
    let width = rest.first().cloned().map_or_else(|| named.peek("width"), Ok);
    let width = width.ok().and_then(|width| usize::try_from(width).ok()).unwrap_or(0);
    check_width(width)?;
    let value = text(value);
    let more = value.lines().count().checked_mul(width);
    fits(more.and_then(|more| more.checked_add(value.len())))
}

fn check_width(width: usize) -> Result<(), Error> {
    if width <= MAX_INDENT {
        return Ok(());
    }
    let message = format!("a line is indented by at most {MAX_INDENT}");
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn check_tojson(given: &[Value], named: &Kwargs) -> Result<(), Error> {
    let [value, rest @ ..] = given else { return Ok(()) };
    let indent = rest.first().cloned().map_or_else(|| named.peek("indent"), Ok);
    let indent = indent.ok().and_then(|indent| usize::try_from(indent).ok()).unwrap_or(2);
    check_width(indent)?;
    let mut size = Size { indent, ..Size::default() };
    size.add(value, 0, 0)
}

fn check_format(given: &[Value], named: &Kwargs) -> Result<(), Error> {
    let format = given.first().map(text).unwrap_or_default();
    for after in format.split('%').skip(1) {
        let name = after.split_once(')').filter(|(name, _)| name.starts_with('('));
        let after = name.map_or(after, |(_, after)| after);
        let after = after.trim_start_matches(|c| "-+ #".contains(c));
        let end = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
        let mut widths = after[..end].split('.').filter(|digits| !digits.is_empty());
        let fits = |digits: &str| digits.parse::<usize>().is_ok_and(|width| width <= MAX_INDENT);
        if after[end..].starts_with('*') || !widths.all(fits) {
            let message = format!("a width is a number up to {MAX_INDENT}");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    // A named argument may stand in every place.
    let mut size = Size::default();
    given.iter().try_for_each(|value| size.add(value, MAX_INDENT, 0))?;
    size.add(&Value::from(named.clone()), MAX_INDENT, 0)?;
    fits(format.matches("%(").count().max(1).checked_mul(size.bytes))
}

fn check_count(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    let count = given.get(1).cloned().and_then(|count| usize::try_from(count).ok());
    few_items(count.unwrap_or(0))?;
    few_items(given.first().and_then(Value::len).unwrap_or(0))
}

fn check_characters(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    few_items(given.first().and_then(Value::len).unwrap_or(0))
}

fn check_split(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    let [value, rest @ ..] = given else { return Ok(()) };
    let value = text(value);
    few_items(match rest.first().filter(|separator| !separator.is_none()) {
        Some(separator) => value.matches(&*text(separator)).take(MAX_ITEMS + 1).count(),
        None => value.split_whitespace().take(MAX_ITEMS + 1).count(),
    })
}

fn check_lines(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    let value = given.first().map(text).unwrap_or_default();
    few_items(value.lines().take(MAX_ITEMS + 1).count())
}

fn check_operand(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    let Some(value) = given.first() else { return Ok(()) };
    if value.as_str().is_some_and(|text| text.len() > MAX_OPERAND) {
        let message = format!("a text before `~` or `+` has more than {MAX_OPERAND} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    if value.as_str().is_some() { Ok(()) } else { few_items(value.len().unwrap_or(0)) }
}

/// The text of a string or a number; empty for other values, which filters on texts refuse.
fn text(value: &Value) -> Cow<'_, str> {
    match value.as_str() {
        Some(text) => Cow::Borrowed(text),
        None if value.kind() == ValueKind::Number => Cow::Owned(value.to_string()),
        None => Cow::Borrowed(""),
    }
}

fn check_text(given: &[Value], _: &Kwargs) -> Result<(), Error> {
    match given.first() {
        Some(value) => Size::default().add(value, 0, 0),
        None => Ok(()),
    }
}

/// About how long the text of a value is, counted up to the limit: a list may have one value many times.
#[derive(Default)]
struct Size {
    bytes: usize,
    /// By which every level is indented.
    indent: usize,
}

impl Size {
    fn add(&mut self, value: &Value, between: usize, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let message = format!("the value is nested more than {MAX_DEPTH} deep");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        // A separator, a number, or quotes.
        let mut own = 4 + between + self.indent * depth;
        own += value.as_bytes().map_or(0, <[u8]>::len);
        self.bytes = self.bytes.saturating_add(own);
        fits(Some(self.bytes))?;
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
            return Ok(());
        }
        for item in value.try_iter()? {
            self.add(&item, between, depth + 1)?;
            if value.kind() == ValueKind::Map {
                self.add(&value.get_item(&item)?, between, depth + 1)?;
            }
        }
        Ok(())
    }
}
