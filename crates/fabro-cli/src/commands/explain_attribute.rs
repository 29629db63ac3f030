//! `fabro explain-attribute`: the reference of an attribute.

use std::fmt::Write as _;

use clap_complete::ArgValueCandidates;
use fabro_graph::schema::{self, Attribute, Place, ValueType};
use fabro_terminal::Paint;
use fabro_types::nearest;
use serde_json::{Value, json};

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Explain an attribute of the workflow language
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro explain-attribute\n  fabro explain-attribute timeout\n  fabro help attribute max_retries\n  fabro explain-attribute timeout --json | jq .default"
)]
pub struct ExplainAttributeArgs {
    /// The attribute; all are listed without one
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::attributes))]
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the reference of an attribute, or a list of all.
pub fn explain_attribute(args: &ExplainAttributeArgs, global: &Global) -> anyhow::Result<Exit> {
    let paint = global.paint_stdout();
    match &args.name {
        None => {
            let all: Vec<Value> = schema::ATTRIBUTES.iter().map(as_json).collect();
            output::report(args.json, &all, || list(paint))?;
        }
        Some(name) => {
            let attribute = named(name)?;
            output::report(args.json, &as_json(attribute), || text(attribute, name, paint))?;
        }
    }
    Ok(Exit::SUCCEEDED)
}

/// The attribute of a name, or of an older one.
fn named(name: &str) -> anyhow::Result<&'static Attribute> {
    let older = schema::OLDER_NAMES.iter().find(|older| older.older == name);
    let current = older.map_or(name, |older| older.name);
    if let Some(attribute) = schema::find_anywhere(current) {
        return Ok(attribute);
    }
    let message = format!("there is no attribute `{name}`");
    let names = schema::ATTRIBUTES.iter().map(|attribute| attribute.name);
    let older = schema::OLDER_NAMES.iter().map(|older| older.older);
    let next = if let Some(instead) = fabro_validate::written_instead(name) {
        instead.to_owned()
    } else if schema::GRAPHVIZ.binary_search(&name).is_ok() {
        "it is an attribute of Graphviz: drawings use it, and runs ignore it".to_owned()
    } else if let Some(near) = nearest(name, names.chain(older)) {
        format!("did you mean `{near}`?")
    } else {
        "`fabro explain-attribute` lists all; others are kept in a file, and have no effect"
            .to_owned()
    };
    Err(error::usage(message, next))
}

fn places(attribute: &Attribute) -> Vec<&'static str> {
    attribute.places.iter().map(|place| place.as_str()).collect()
}

fn words(attribute: &Attribute) -> Option<&'static [&'static str]> {
    match attribute.value {
        ValueType::Words(words) => Some(words),
        _ => None,
    }
}

fn as_json(attribute: &Attribute) -> Value {
    json!({
        "name": attribute.name,
        "on": places(attribute),
        "value": attribute.value.to_string(),
        "allowed": words(attribute),
        "default": (!attribute.default.is_empty()).then_some(attribute.default),
        "file": attribute.file,
        "meaning": attribute.doc,
        "example": attribute.example(),
        "older_names": attribute.older_names().collect::<Vec<_>>(),
    })
}

fn text(attribute: &Attribute, asked: &str, paint: Paint) -> String {
    let mut text = format!("{}\n", paint.bold(attribute.name));
    if attribute.older_names().any(|older| older == asked) {
        let _ = writeln!(text, "`{asked}` is an older name of it, and means the same.");
    }
    let _ = writeln!(text, "\n{}.\n", sentence(attribute.doc));
    let of = |place: &Place| match place {
        Place::Graph => "the graph",
        Place::Node => "nodes",
        Place::Edge => "edges",
    };
    let on: Vec<_> = attribute.places.iter().map(of).collect();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<9}{value}");
    };
    row("on", &on.join(", "));
    match words(attribute) {
        Some(words) => row("value", &format!("one of {}", words.join(", "))),
        None => row("value", &value_text(attribute)),
    }
    row("default", if attribute.default.is_empty() { "none" } else { attribute.default });
    if attribute.file {
        row("file", "@path stands for the text of that file, @@ for a literal @");
    }
    let older: Vec<_> = attribute.older_names().collect();
    if !older.is_empty() {
        row("older", &older.join(", "));
    }
    row("example", &attribute.example());
    text
}

fn value_text(attribute: &Attribute) -> String {
    match attribute.value {
        ValueType::Duration => {
            "a duration: 250ms, 30s, 15m, 2h, 1d; a number alone is in seconds".to_owned()
        }
        value => value.to_string(),
    }
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

fn list(paint: Paint) -> String {
    let width = schema::ATTRIBUTES.iter().map(|attribute| attribute.name.len()).max().unwrap_or(0);
    let line = |attribute: &Attribute| {
        let name = format!("{:<width$}", attribute.name);
        let on = places(attribute).join(",");
        format!("{}  {on:<15}  {}\n", paint.bold(&name), attribute.doc)
    };
    schema::ATTRIBUTES.iter().map(line).collect()
}
