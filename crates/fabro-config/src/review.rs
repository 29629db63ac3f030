use crate::reader::{SettingsReview, review};
use crate::schema::{CONFIG_FILE, PROJECT_FILE, RUN_FILE, Schema};

/// The kinds of settings files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsFile {
    /// A run.toml, also as `workflow.toml`.
    Run,
    /// A project file of upstream: `.fabro/project.toml` or `fabro.toml`.
    Project,
    /// A config.toml.
    Config,
}

impl SettingsFile {
    pub(crate) fn schema(self) -> Schema {
        match self {
            Self::Run => RUN_FILE,
            Self::Project => PROJECT_FILE,
            Self::Config => CONFIG_FILE,
        }
    }
}

/// What this version understands of a settings file, and what it does not.
///
/// ```
/// use fabro_config::{SettingsFile, review_settings};
///
/// let text = "_version = 1\n[run]\ngoal = 'x'\n[run.pull_request]\nenabled = true\n";
/// let review = review_settings(text, SettingsFile::Project);
/// assert_eq!(review.understood[1].0, "run.goal");
/// assert_eq!(review.findings[0].message, "`run.pull_request` has no effect: no pull request is opened");
/// ```
pub fn review_settings(text: &str, file: SettingsFile) -> SettingsReview {
    review(text, file.schema()).1
}
