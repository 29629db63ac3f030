//! The languages inside attributes, each text compiled once however many nodes and edges share it.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use fabro_condition::{Condition, Filled};
use fabro_graph::{Attr, Diagnostic, Span, Workflow};
use fabro_routing::Schema;
use fabro_template::{Mode, ReadTarget, Template};
use fabro_types::SyntaxError;

use crate::attribute_text::attribute_error;
use crate::constants::Constants;
use crate::spec::TextTemplate;

/// How many values of one script are reported: finding the place of each reads the script.
const MAX_SCRIPT_VALUES: usize = 20;

/// The rule for values that a script would run as code.
pub(crate) const SCRIPT_VALUE: &str = "script-value";

/// The rule for templates that read what is not known when a run is created.
pub(crate) const CONSTANT: &str = "constant-template";

/// Whether the text of an attribute is a whole template of Jinja: that of a file `.j2`, and a prompt, a
/// stylesheet or any other file except a script, with blocks such as `{% if … %}`.
pub fn is_jinja(attr: &Attr, text: &str) -> bool {
    let is_template = |file: &str| Path::new(file).extension().is_some_and(|end| end == "j2");
    // The values of a whole template are not quoted, as those in a script must be.
    let is_script = || attr.name == "script";
    let takes_blocks = || {
        attr.file.is_some() && !is_script() || matches!(&*attr.name, "prompt" | "model_stylesheet")
    };
    attr.file.as_deref().is_some_and(is_template) || takes_blocks() && Template::has_blocks(text)
}

/// The text of an attribute by its place: one where nodes and edges share it, and another for each import
/// of a file in which it names keys of stages.
#[derive(Clone, Debug)]
pub struct TextPlace {
    span: Span,
    text: Option<Arc<str>>,
}

impl TextPlace {
    /// The place of this attribute's text.
    pub fn of(attr: &Attr) -> Self {
        Self { span: attr.span, text: attr.value.shared_text() }
    }

    fn address(&self) -> Option<usize> {
        self.text.as_ref().map(|text| Arc::as_ptr(text).cast::<u8>().addr())
    }
}

impl PartialEq for TextPlace {
    fn eq(&self, other: &Self) -> bool {
        self.span == other.span && self.address() == other.address()
    }
}

impl Eq for TextPlace {}

impl Hash for TextPlace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.span.hash(state);
        self.address().hash(state);
    }
}

/// Compiled texts by the place of their attribute; `None` for one that has an error.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    conditions: HashMap<TextPlace, Option<Arc<Condition>>>,
    templates: HashMap<TextPlace, Option<TextTemplate>>,
    schemas: HashMap<Span, Option<Arc<Schema>>>,
    schema_files: HashMap<Arc<str>, Result<Arc<Schema>, SyntaxError>>,
    /// Scripts whose values were looked at.
    scripts: HashSet<(Span, bool)>,
    /// The places of errors, with their rules.
    reported: HashSet<(Span, &'static str)>,
}

impl Compiled {
    /// The condition in this attribute; `None` when it does not parse.
    pub fn condition(&self, attr: &Attr) -> Option<&Arc<Condition>> {
        self.conditions.get(&TextPlace::of(attr))?.as_ref()
    }

    /// The template in this attribute; `None` when it does not parse.
    pub fn template(&self, attr: &Attr) -> Option<&TextTemplate> {
        self.templates.get(&TextPlace::of(attr))?.as_ref()
    }
}

/// Compiles texts and collects their errors.
pub(crate) struct Compiler<'w> {
    pub(crate) workflow: &'w Workflow,
    /// What is known of the run; `None` while there is none.
    pub(crate) constants: Option<&'w Constants>,
    /// Whether an attribute reads a constant.
    pub(crate) reads_constants: bool,
    pub(crate) compiled: Compiled,
    pub(crate) findings: Vec<Diagnostic>,
}

impl Compiler<'_> {
    pub(crate) fn condition(&mut self, attr: &Attr) -> Option<Arc<Condition>> {
        if let Some(known) = self.compiled.conditions.get(&TextPlace::of(attr)) {
            return known.clone();
        }
        let known = self.findings.len();
        let condition = match self.constant_condition(attr) {
            Ok(condition) => Some(Arc::new(condition)),
            // A template that reads the context has an error of its own.
            Err(_) if self.findings.len() > known => None,
            Err(mut error) => {
                if attr.value.as_text().trim_start().starts_with("{{") {
                    error = error.with_fix(
                        "write the context key on the left without braces, the input on the right: context.KEY = {{ inputs.NAME }}",
                    );
                }
                self.report("condition-syntax", attr, &error);
                None
            }
        };
        self.compiled.conditions.insert(TextPlace::of(attr), condition.clone());
        condition
    }

    /// The text of an attribute with its constants; as written if they are not known, or on an error,
    /// which is reported.
    pub(crate) fn constant(&mut self, attr: &Attr) -> Option<Arc<str>> {
        let text = attr.value.shared_text()?;
        Some(self.rendered(attr, &text).unwrap_or(text))
    }

    /// The same for a label, where people see other templates as they are written.
    pub(crate) fn label(&mut self, attr: &Attr) -> Option<Arc<str>> {
        let text = attr.value.shared_text()?;
        let reads_constants = Template::parse(&text)
            .is_ok_and(|label| label.reads().iter().all(|read| is_constant(&read.target)));
        let rendered = if reads_constants { self.rendered(attr, &text) } else { None };
        Some(rendered.unwrap_or(text))
    }

    fn rendered(&mut self, attr: &Attr, text: &str) -> Option<Arc<str>> {
        if !text.contains("{{") || !self.is_constant(attr) {
            return None;
        }
        let template = self.template(attr)?.template;
        let constants = self.constants?;
        match constants.render(&template) {
            Ok(rendered) => Some(rendered.into()),
            Err(message) => {
                self.report(CONSTANT, attr, &whole(text, message));
                None
            }
        }
    }

    /// A condition, in which each constant is one value.
    pub(crate) fn constant_condition(&mut self, attr: &Attr) -> Result<Condition, SyntaxError> {
        let text = attr.value.as_text();
        if !text.contains("{{") || !self.is_constant(attr) {
            return Condition::parse(&text);
        }
        let constants = self.constants;
        Condition::parse_with(&text, &mut |value, span| {
            let template = Template::parse(value).map_err(|error| SyntaxError { span, ..error })?;
            match constants {
                _ if template.is_plain() => Ok(Filled::AsWritten),
                None => Ok(Filled::NotYet),
                Some(constants) => constants
                    .render(&template)
                    .map(Filled::With)
                    .map_err(|message| SyntaxError::new(message, span)),
            }
        })
    }

    /// Whether a text has templates, and they read only what is known when the run is created.
    /// Anything else in it is an error.
    pub(crate) fn is_constant(&mut self, attr: &Attr) -> bool {
        let Some(text) = self.template(attr) else { return false };
        let mut is_constant = !text.template.is_plain();
        self.reads_constants |= is_constant;
        for read in text.template.reads() {
            let ReadTarget::Context(key) = &read.target else { continue };
            is_constant = false;
            let message = format!(
                "`context.{key}` is read in `{}`, which is settled when the run is created",
                attr.written
            );
            let error = SyntaxError::new(message, read.span);
            let error = match &*attr.name {
                "condition" | "manager.stop_condition" => {
                    error.with_fix(format!("write the context key without braces: {key}"))
                }
                _ => error.with_fix("read an input instead: {{ inputs.NAME }}"),
            };
            self.report(CONSTANT, attr, &error);
        }
        is_constant
    }

    pub(crate) fn template(&mut self, attr: &Attr) -> Option<TextTemplate> {
        if let Some(known) = self.compiled.templates.get(&TextPlace::of(attr)) {
            return known.clone();
        }
        let text = attr.value.shared_text()?;
        let parsed = if is_jinja(attr, &text) {
            Template::parse_jinja(&text)
        } else {
            Template::parse(&text)
        };
        let template = match parsed {
            Ok(template) => Some(TextTemplate { text, template }),
            Err(error) => {
                self.report("template-syntax", attr, &error);
                None
            }
        };
        self.compiled.templates.insert(TextPlace::of(attr), template.clone());
        template
    }

    /// Values that stand where the script would run them as code. Each script is looked at once.
    pub(crate) fn values_in_script(&mut self, attr: &Attr, script: &TextTemplate, mode: Mode) {
        if script.template.is_plain()
            || !self.compiled.scripts.insert((attr.span, mode == Mode::Python))
        {
            return;
        }
        if script.template.is_jinja() {
            let whole = Span::new(0, script.text.len());
            let message = "a script cannot be a .j2 file with values: they would not be quoted";
            let fix =
                "write {{ … }} in a script without blocks, or pass values as env.NAME=\"{{ … }}\"";
            self.report(SCRIPT_VALUE, attr, &SyntaxError::new(message, whole).with_fix(fix));
            return;
        }
        for error in script.template.misplaced(mode).iter().take(MAX_SCRIPT_VALUES) {
            self.report(SCRIPT_VALUE, attr, error);
        }
    }

    /// The goal is rendered before any stage: it cannot read what exists only later.
    pub(crate) fn goal(&mut self, attr: &Attr) -> Option<TextTemplate> {
        let goal = self.template(attr)?;
        for read in goal.template.reads() {
            let (message, fix) = match &read.target {
                ReadTarget::Goal => (
                    "a goal cannot read `goal`, which is itself".to_owned(),
                    "write the text, or read an input: {{ inputs.NAME }}",
                ),
                ReadTarget::Context(key) if !read.optional => (
                    format!("`{key}` is read in the goal, before any stage can write it"),
                    "read an input instead: {{ inputs.NAME }}",
                ),
                _ => continue,
            };
            self.report(
                "template-syntax",
                attr,
                &SyntaxError::new(message, read.span).with_fix(fix),
            );
        }
        Some(goal)
    }

    /// The JSON Schema in an `output_schema`.
    pub(crate) fn schema(&mut self, attr: &Attr) -> Option<Arc<Schema>> {
        if let Some(known) = self.compiled.schemas.get(&attr.span) {
            return known.clone();
        }
        let text = attr.value.text()?;
        let compiled = match &attr.file {
            Some(file) => {
                let files = &mut self.compiled.schema_files;
                files
                    .entry(Arc::clone(file))
                    .or_insert_with(|| Schema::compile(text).map(Arc::new))
                    .clone()
            }
            None => Schema::compile(text).map(Arc::new),
        };
        let schema = match compiled {
            Ok(schema) => Some(schema),
            Err(error) => {
                self.report("output-schema", attr, &error);
                None
            }
        };
        self.compiled.schemas.insert(attr.span, schema.clone());
        schema
    }

    pub(crate) fn report(&mut self, rule: &'static str, attr: &Attr, error: &SyntaxError) {
        let finding = attribute_error(self.workflow.source(), rule, attr, error);
        // A file that is imported several times has its errors once.
        if self.compiled.reported.insert((finding.span, rule)) {
            self.findings.push(finding);
        }
    }
}

fn is_constant(target: &ReadTarget) -> bool {
    matches!(target, ReadTarget::Goal | ReadTarget::Input(_))
}

fn whole(text: &str, message: String) -> SyntaxError {
    SyntaxError::new(message, Span::new(0, text.len()))
}
