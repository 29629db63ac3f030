/// A template that cannot be rendered with the values there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// No stage has written a context key.
    #[error(
        "the context has no key `{key}`; write it in an earlier stage, or give a default: `{{{{ context.{key} | default(\"\") }}}}`"
    )]
    MissingContext {
        /// The key, without `context.`.
        key: String,
    },
    /// The run has no such input.
    #[error("there is no input `{name}`; set it under [run.inputs]")]
    MissingInput {
        /// Its name.
        name: String,
    },
    /// A context value is there but cannot be had.
    #[error("the context key `{key}` cannot be read: {reason}")]
    Unreadable {
        /// The key, without `context.`.
        key: String,
        /// Why, in words.
        reason: String,
    },
    /// A value is too large to be a part of a script.
    #[error("`{expression}` has {bytes} bytes, and a script takes at most {limit} of one value{}", advice(path.as_deref()))]
    ValueTooLarge {
        /// The expression as it is written.
        expression: String,
        /// How long its text is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
        /// The file that holds the value, where there is one.
        path: Option<String>,
    },
    /// What is rendered grows out of bounds.
    #[error(
        "the rendered text has more than {limit} bytes; refer to files instead of their content"
    )]
    OutputTooLarge {
        /// How long it may be.
        limit: usize,
    },
    /// A value stands where it cannot be quoted.
    #[error("`{expression}` cannot stand {place}; {fix}")]
    Unquotable {
        /// The expression as it is written.
        expression: String,
        /// Where it stands, in words.
        place: String,
        /// What to do.
        fix: String,
    },
    /// The script itself is no text of a script.
    #[error("the script holds a NUL character, which no command can take")]
    NulInScript,
    /// A template file was to become a script.
    #[error(
        "a file with blocks of Jinja, or a .j2 file, cannot be a script: its values would not be quoted"
    )]
    JinjaScript,
    /// A filter, an operator or a call failed.
    #[error("`{expression}` cannot be rendered: {reason}")]
    Evaluation {
        /// The expression as it is written; of a template file, its line.
        expression: String,
        /// Why, in words.
        reason: String,
    },
}

fn advice(path: Option<&str>) -> String {
    path.map_or_else(String::new, |path| format!("; read it from the file {path}"))
}
