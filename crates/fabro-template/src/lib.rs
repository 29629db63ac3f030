//! Templates in prompts, scripts and goals: `{{ goal }}`, `{{ inputs.repo }}`, `{{ context.audit }}`.
//!
//! An expression is a tag that begins with `goal`, `inputs` or `context`; every other `{{` is text,
//! so that `docker ps --format '{{.Names}}'` means what it says. Expressions and filters are those of
//! Jinja. Files that are Jinja from end to end are read by [`Template::parse_jinja`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use fabro_template::{Mode, Template, Values};
//! use serde_json::json;
//!
//! let values = Values {
//!     goal: "it's done".to_owned(),
//!     context: [("audit.score".to_owned(), Arc::new(json!(91)))].into(),
//!     ..Values::default()
//! };
//! let render = |text, mode| Template::parse(text).unwrap().render(Arc::new(values.clone()), mode);
//!
//! let prompt = "Score {{ context.audit.score }}, {{ context.author | default('unsigned') }}.";
//! assert_eq!(render(prompt, Mode::Prompt).unwrap(), "Score 91, unsigned.");
//! assert_eq!(render("echo {{ goal }}", Mode::Shell).unwrap(), r"echo 'it'\''s done'");
//! assert_eq!(render("echo \"{{ goal }}\"", Mode::Shell).unwrap(), "echo \"it's done\"");
//! ```
//!
//! A dotted name is one flat key first, then a path into a JSON value. Null is rendered as nothing,
//! lists and maps as compact JSON; a value that is missing is an error that names it, unless a
//! default is given.
//!
//! In a shell script a value is quoted for the word or the quoted string that it stands in, and refused
//! where it would be evaluated; [`Template::misplaced`] tells so before anything runs. In a Python script
//! a value in a string literal is escaped for it, and `{{ context.report | py }}` is a literal of its own
//! (`None`, `True`), `tojson` JSON. `{{ … | raw }}` puts a value in as it is, `int` and `float` make
//! numbers, which may stand anywhere.
//!
//! # Limits
//!
//! One value in a script has at most 128 KiB, a rendered text 32 MiB, one tag 400 parts; an expression
//! runs at most two million steps of the engine. A filter makes at most 32 MiB of text or a million
//! elements, and what stands before `~` or `+` has at most 8 MiB. Template files cannot include others here
//! (`fabro-graph` puts the text of an included file in its place), and cannot become shell scripts.

mod bounds;
mod code_variables;
mod engine;
mod error;
mod limited;
mod misplaced;
mod parse;
mod python;
mod python_code;
mod python_flow;
mod render;
mod scan;
mod script;
mod shell;
#[cfg(test)]
mod tests;
mod text;
mod vars;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fabro_types::Span;
pub use fabro_types::SyntaxError;
use minijinja::Environment;

pub use code_variables::is_code_variable;
use engine::Root;
pub use error::RenderError;
use parse::{FormulaKind, Part};
pub use vars::{Values, Vars};

/// What a template is rendered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A prompt: values as they are, and `$goal` is the goal.
    Prompt,
    /// Any other text: values as they are.
    Text,
    /// A script for `sh` or `bash`: values quoted, except through `raw`; no value over 128 KiB.
    Shell,
    /// A script for Python: values escaped in string literals, elsewhere literals only; no value over
    /// 128 KiB.
    Python,
    /// An environment variable of a script: values as they are; no value over 128 KiB.
    Variable,
}

/// The words that begin a block of Jinja.
const BLOCKS: [&str; 13] = [
    "if", "for", "set", "macro", "raw", "block", "include", "import", "from", "extends", "filter",
    "with", "call",
];

/// A template, ready to be rendered any number of times.
#[derive(Clone)]
pub struct Template {
    body: Body,
    reads: Vec<Read>,
}

#[derive(Clone)]
enum Body {
    Plain(Arc<str>),
    Parts(Arc<Vec<Part>>),
    Jinja { environment: Arc<Environment<'static>>, plain: bool },
}

/// A value that a template reads by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Which value.
    pub target: ReadTarget,
    /// Where its name stands, in bytes of the text of the template.
    pub span: Span,
    /// The template says what to do when it is missing: by `default`, `is defined` or a condition.
    pub optional: bool,
}

/// What a template can read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadTarget {
    /// `goal`.
    Goal,
    /// `inputs.NAME`; after a dot in the name there may be a path into the input.
    Input(String),
    /// `context.KEY`; after a dot in the key there may be a path into the value.
    Context(String),
}

impl Template {
    /// Reads text in which tags that begin with `goal`, `inputs` or `context` are expressions and
    /// everything else is text.
    ///
    /// # Errors
    /// The first tag of ours that does not parse, names a filter or a value that there is not, or
    /// is not closed.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        parse::ours(text)
    }

    /// Reads a template file in the whole of Jinja, `{% if … %}`, `{% for … %}` and the rest.
    ///
    /// # Errors
    /// The first place that does not parse, names a filter or a value that there is not, or needs
    /// another file.
    pub fn parse_jinja(text: &str) -> Result<Self, SyntaxError> {
        parse::jinja(text)
    }

    /// Whether a text has a block of Jinja, such as `{% if … %}`.
    ///
    /// ```
    /// assert!(fabro_template::Template::has_blocks("{%- if goal %}"));
    /// assert!(!fabro_template::Template::has_blocks("100 {% of it, {{ goal }}"));
    /// ```
    pub fn has_blocks(text: &str) -> bool {
        Self::first_block(text).is_some()
    }

    /// Where the first block of Jinja is, from `{%` to `%}`, or to the end of its first word when it is not closed.
    pub fn first_block(text: &str) -> Option<Span> {
        text.match_indices("{%").find_map(|(start, open)| {
            let after = &text[start + open.len()..];
            let rest = after.strip_prefix(['-', '+']).unwrap_or(after).trim_start();
            let length = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let word = text.len() - rest.len() + length;
            let close = after.find("%}").map(|close| start + open.len() + close + 2);
            BLOCKS.contains(&&rest[..length]).then(|| Span::new(start, close.unwrap_or(word)))
        })
    }

    /// Whether it is a template of the whole of Jinja with values in it: it cannot be rendered as a script.
    pub fn is_jinja(&self) -> bool {
        matches!(self.body, Body::Jinja { .. }) && !self.is_plain()
    }

    /// The text with its values.
    ///
    /// # Errors
    /// A value is missing, cannot be read, cannot be quoted or is too large; an operation fails.
    pub fn render(&self, vars: Arc<dyn Vars>, mode: Mode) -> Result<String, RenderError> {
        match &self.body {
            Body::Plain(text) => Ok(text.to_string()),
            Body::Parts(parts) => render::parts(parts, &Root::new(vars, mode)),
            Body::Jinja { environment, .. } => render::jinja(environment, &Root::new(vars, mode)),
        }
    }

    /// The value of a template that is one expression and nothing else; of any other its text.
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn value(&self, vars: Arc<dyn Vars>) -> Result<serde_json::Value, RenderError> {
        let root = Root::new(vars, Mode::Text);
        if let Body::Parts(parts) = &self.body {
            let is_empty = |part: &&Part| matches!(part, Part::Literal(text) if text.is_empty());
            let mut parts = parts.iter().filter(|part| !is_empty(part));
            if let (Some(Part::Expression(formula)), None) = (parts.next(), parts.next()) {
                return render::json(formula, &root);
            }
        }
        self.render(Arc::clone(&root.vars), Mode::Text).map(serde_json::Value::from)
    }

    /// The values that stand where a script of this kind would run them as code: rendering fails
    /// there. What goes through `raw` is taken for an ordinary word.
    pub fn misplaced(&self, mode: Mode) -> Vec<SyntaxError> {
        match &self.body {
            Body::Parts(parts) => script::misplaced(parts, mode),
            _ => Vec::new(),
        }
    }

    /// The variables that a shell script evaluates, such as `N` in `$((N + 1))`. `None` when any
    /// variable may be one, for the script cannot be followed.
    pub fn evaluated(&self) -> Option<BTreeSet<String>> {
        match &self.body {
            Body::Plain(text) => script::evaluated(text),
            Body::Parts(parts) => script::evaluated(&script::skeleton(parts)),
            Body::Jinja { .. } => None,
        }
    }

    /// The template is one expression that gives a number: it ends in `int`, `float` or the like.
    pub fn is_number(&self) -> bool {
        let Body::Parts(parts) = &self.body else { return false };
        let mut formulas =
            parts.iter().filter(|part| !matches!(part, Part::Literal(text) if text.is_empty()));
        matches!((formulas.next(), formulas.next()), (Some(Part::Expression(only)), None) if only.kind == FormulaKind::Number)
    }

    /// The values that it reads by name, in the order of the text. Computed keys, as in
    /// `context[goal]`, are not among them.
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// True when rendering changes nothing, with any values and in any mode.
    pub fn is_plain(&self) -> bool {
        match &self.body {
            Body::Plain(_) => true,
            Body::Parts(parts) => parts.iter().all(|part| matches!(part, Part::Literal(_))),
            Body::Jinja { plain, .. } => *plain,
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("reads", &self.reads).finish_non_exhaustive()
    }
}
