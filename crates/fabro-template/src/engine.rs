//! The expression engine: its settings, and our values as it sees them.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

use crate::bounds::{bound_filters, count_emitted};
use crate::text::{Raw, text_of};
use crate::vars::resolve;
use crate::{Mode, ReadTarget, RenderError, Vars};

/// What one expression, or one template file, may do, in steps of the engine.
const FUEL: u64 = 2_000_000;

/// The name under which template files read what `$goal` stands for.
pub(crate) const DOLLAR_GOAL: &str = "__dollar_goal";

/// Where expressions of workflows are compiled and run; none of them changes it.
pub(crate) static EXPRESSIONS: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// A fresh engine with our settings.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // Printing what is missing fails, asking whether it is there does not.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    bound_filters(&mut environment);
    environment.add_filter("raw", |value: Value| {
        Ok::<_, Error>(Value::from_object(Raw(text_of(&value)?)))
    });
    environment.add_filter("py", |value: Value| crate::python::literal(&value));
    environment.set_formatter(|out, state, value| {
        let text = text_of(value)?;
        count_emitted(state, text.len())?;
        out.write_str(&text).map_err(Error::from)
    });
    environment
}

/// The outermost names of a template, and what happened when they were read.
pub(crate) struct Root {
    pub(crate) vars: Arc<dyn Vars>,
    pub(crate) mode: Mode,
    pub(crate) notes: Mutex<Notes>,
}

/// What the engine's own errors do not tell.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The value that was asked for last and is not there; an error only if the expression says so.
    missing: Option<ReadTarget>,
    /// A value that could not be read.
    unreadable: Option<RenderError>,
}

impl Root {
    pub(crate) fn new(vars: Arc<dyn Vars>, mode: Mode) -> Arc<Self> {
        Arc::new(Self { vars, mode, notes: Mutex::default() })
    }

    /// Our error for one of the engine's: the reason where we know it better.
    ///
    /// A missing value is the reason unless the expression does without it, which is for the caller
    /// to say: most operations report it as an operand of the wrong type.
    pub(crate) fn explain(
        &self,
        error: &Error,
        expression: impl Fn() -> String,
        does_without: impl Fn(&ReadTarget) -> bool,
    ) -> RenderError {
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        let missing = notes
            .missing
            .filter(|missing| error.kind() == ErrorKind::UndefinedError || !does_without(missing));
        let missing = missing.and_then(|missing| match missing {
            ReadTarget::Context(key) => Some(RenderError::MissingContext { key }),
            ReadTarget::Input(name) => Some(RenderError::MissingInput { name }),
            ReadTarget::Goal => None,
        });
        notes.unreadable.or(missing).unwrap_or_else(|| RenderError::Evaluation {
            expression: expression(),
            reason: reason(error),
        })
    }

    /// Forgets what earlier expressions read.
    pub(crate) fn begin(&self) {
        self.note(|notes| *notes = Notes::default());
    }

    fn note(&self, write: impl FnOnce(&mut Notes)) {
        write(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read_input(&self, name: &str) -> Option<Value> {
        let found = resolve::<std::convert::Infallible>(name, |name| {
            Ok(self.vars.input(name).map(Arc::new))
        });
        let Ok(found) = found;
        if found.is_none() {
            let missing = ReadTarget::Input(name.to_owned());
            self.note(|notes| notes.missing = Some(missing));
        }
        found.map(|value| Value::from(Serde(&*value)))
    }

    fn read_context(&self, key: &str) -> Option<Value> {
        // As in conditions, a key may carry `context.` in its own name.
        let literal = self.vars.context(&format!("context.{key}")).transpose();
        let found = literal
            .map_or_else(|| resolve(key, |key| self.vars.context(key)), |found| found.map(Some));
        match found {
            Ok(Some(value)) => Some(Value::from(Serde(&*value))),
            Ok(None) => {
                let missing = ReadTarget::Context(key.to_owned());
                self.note(|notes| notes.missing = Some(missing));
                None
            }
            Err(reason) => {
                let error = Error::new(ErrorKind::InvalidOperation, reason.clone());
                let unreadable = RenderError::Unreadable { key: key.to_owned(), reason };
                self.note(|notes| notes.unreadable = Some(unreadable));
                Some(Value::from(error))
            }
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").finish_non_exhaustive()
    }
}

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "goal" => Some(Value::from(self.vars.goal())),
            "inputs" => Some(Value::from_object(Keys(Arc::clone(self), Root::read_input))),
            "context" => Some(Value::from_object(Keys(Arc::clone(self), Root::read_context))),
            DOLLAR_GOAL if self.mode == Mode::Prompt => Some(Value::from(self.vars.goal())),
            DOLLAR_GOAL => Some(Value::from("$goal")),
            _ => None,
        }
    }
}

/// `inputs` or `context`: read by whole dotted keys, for the tags are rewritten to ask so.
#[derive(Debug)]
struct Keys(Arc<Root>, fn(&Root, &str) -> Option<Value>);

impl Object for Keys {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some(key) => (self.1)(&self.0, key),
            None => (self.1)(&self.0, &key.to_string()),
        }
    }
}

/// What the engine says about an error, in one line.
pub(crate) fn reason(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}
