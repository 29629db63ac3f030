use std::fmt;
use std::io;
use std::path::PathBuf;

use fabro_types::control_files::FABRO_DIR;
use fabro_types::{Diagnostic, LineIndex, Severity};

/// The largest settings file, goal or schema.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// The diagnostics of one settings file, with its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The file.
    pub path: PathBuf,
    /// Its whole text: the spans of the findings point into it.
    pub text: String,
    /// The findings, in the order of the file.
    pub list: Vec<Diagnostic>,
}

impl Findings {
    /// The warnings among them, and the others.
    #[must_use]
    pub fn split(self) -> (Self, Self) {
        let Self { path, text, list } = self;
        let (warnings, errors) =
            list.into_iter().partition(|finding| finding.severity == Severity::Warning);
        let warnings = Self { path: path.clone(), text: text.clone(), list: warnings };
        (warnings, Self { path, text, list: errors })
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = LineIndex::new(&self.text);
        for (nth, finding) in self.list.iter().enumerate() {
            let at = index.position(finding.span.start);
            let separator = if nth == 0 { "" } else { "\n" };
            let path = self.path.display();
            write!(f, "{separator}{path}:{}:{}: ", at.line, at.column)?;
            if finding.severity == Severity::Warning {
                f.write_str("warning: ")?;
            }
            f.write_str(&finding.message)?;
            if let Some(fix) = &finding.fix {
                write!(f, " ({fix})")?;
            }
        }
        Ok(())
    }
}

/// Why the settings of a run cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file holds at least one error.
    #[error("{0}")]
    Invalid(Box<Findings>),
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another user owns the file.
    #[error(
        "{} belongs to another user (uid {owner}), who could use it to run commands as you: take ownership with chown, or remove it",
        path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The id of the user.
        owner: u32,
    },
    /// Other users can write the file.
    #[error("other users can write {}, and could use it to run commands as you: run `chmod go-w` on it", .0.display())]
    Writable(PathBuf),
    /// The user's settings file has an unprotected name in the project.
    #[error(
        "your settings {} are in {}, where agents may write them: set XDG_CONFIG_HOME to a directory outside of it",
        file.display(), root.display()
    )]
    UserFile {
        /// The settings file; it may not exist.
        file: PathBuf,
        /// The project, or the working directory.
        root: PathBuf,
    },
    /// The file is reached by a link to a file that agents and sandboxed scripts may write.
    #[error(
        "{} is a link to {}, which agents may write: replace the link by the file",
        link.display(), target.display()
    )]
    Link {
        /// The control file.
        link: PathBuf,
        /// What it leads to, or a link on the way there.
        target: PathBuf,
    },
    /// The store that was found belongs to another user.
    #[error(
        "{} belongs to another user (uid {owner}), who could use it to run commands as you: work in a directory of your own, or name a store with --store",
        path.display()
    )]
    Store {
        /// The store, or the directory that it is in.
        path: PathBuf,
        /// The id of the user.
        owner: u32,
    },
    /// A control file that may have been created by a sandboxed script that is still running.
    #[error(
        "{} may have been created by a sandboxed script that is still running, and is renamed when the script ends: wait until then, and try again",
        .0.display()
    )]
    OfScript(PathBuf),
    /// A project without settings, nested in a project with settings.
    #[error(
        "{} has no settings, and the settings of the enclosing project {} do not apply here: create {} (fabro init), or run in {}",
        inner.display(), project.display(), inner.join(FABRO_DIR).display(), project.display()
    )]
    NestedProject {
        /// The nested project: the directory with a `.git` or a store.
        inner: PathBuf,
        /// The root of the enclosing project.
        project: PathBuf,
    },
    /// The path does not name a regular file. With files that it may mean.
    #[error("{} is not a file: name a workflow file (.fabro, .dot, .gv) or a run.toml{}", .0.display(), suggest(.1))]
    NotAFile(PathBuf, Vec<String>),
    /// The file is larger than any settings file or goal should be.
    #[error("{} is larger than {MAX_BYTES} bytes: shorten it", .0.display())]
    TooLarge(PathBuf),
    /// A file that should hold a JSON Schema does not hold a JSON object.
    #[error("{} is not a JSON Schema: {}", .0.display(), .1)]
    Schema(PathBuf, #[source] serde_json::Error),
    /// The file does not exist. With a similar name.
    #[error("there is no file {}{}", .0.display(), suggest(.1))]
    NoFile(PathBuf, Vec<String>),
    /// No project folder holds a workflow of that name.
    #[error("there is no workflow `{name}`{}; looked for {}", suggest(near), looked_for(tried))]
    NoWorkflow {
        /// The name that was asked for.
        name: String,
        /// Every file that was looked for, nearest folder first.
        tried: Vec<PathBuf>,
        /// A similar name of a workflow that exists.
        near: Vec<String>,
    },
    /// The file is neither a workflow nor a run.toml.
    #[error(
        "`{0}` is neither a workflow nor a run.toml: the name of a workflow file ends in .fabro, .dot or .gv, that of a run file in .toml"
    )]
    OtherFile(String),
    /// The text is neither a path nor a name of a workflow.
    #[error(
        "`{0}` does not name a workflow: give a workflow file, a run.toml, or the name of a workflow"
    )]
    NoName(String),
}

fn suggest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!(" (did you mean `{one}`?)"),
        many => format!(" (did you mean one of `{}`?)", many.join("`, `")),
    }
}

/// The nearest folder's files by name, the rest by number: a deep folder has dozens.
fn looked_for(tried: &[PathBuf]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = tried.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
    let more = tried.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { ", and the same in the folders above".into() };
    format!("{}{rest}", shown.join(", "))
}
