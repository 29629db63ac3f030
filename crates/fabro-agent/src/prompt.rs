use std::fmt::Write as _;
use std::path::Path;

use fabro_types::Permissions;

use crate::Skill;
use crate::skills::list;

/// What a system prompt is built from.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemInfo<'a> {
    /// The label of its node, where the conversation began with it in the system prompt. Empty for others:
    /// their first message says it ([`Settings::opening`](crate::Settings::opening)), so that the stages of
    /// a thread begin their requests with the same text, which the provider has cached.
    pub label: &'a str,
    /// Where it works.
    pub work_dir: Option<&'a Path>,
    /// What its tools may do.
    pub permissions: Permissions,
    /// The names of all its tools; [`SUBAGENT_TOOLS`](crate::SUBAGENT_TOOLS) are among them where it
    /// may start subagents.
    pub tools: &'a [String],
    /// The project's instructions: see [`project_docs`](crate::project_docs).
    pub project_docs: &'a str,
    /// The skills it can read.
    pub skills: &'a [Skill],
}

/// The system prompt of an agent: its role, working directory and permissions, and the project's
/// instructions. The same information gives the same text.
pub fn system_prompt(info: &SystemInfo<'_>) -> String {
    let mut text = "You are an agent that works on one stage of a workflow, without a person beside you. \
        Nobody answers questions: decide what is sensible, do the work, and say in your last answer \
        what you did, what you found, and what is still open."
        .to_owned();
    if !info.label.is_empty() {
        let _ = write!(text, " The stage is \"{}\".", info.label);
    }
    if !info.tools.is_empty() {
        text.push_str("\n\n");
        text.push_str(
            "Use your tools instead of guessing: look at files before you speak of them or change \
             them, make the smallest change that does the job, and check that it works. Call tools \
             together when one does not need what another finds. An answer without a tool call ends \
             the stage, so give it only when you are done.",
        );
        let _ = write!(text, " Your tools: {}.", info.tools.join(", "));
        let _ = write!(
            text,
            " Your permissions are \"{}\": {}.",
            info.permissions.as_str(),
            may(info.permissions)
        );
    }
    if let Some(dir) = info.work_dir {
        let _ =
            write!(text, " The working directory is {}; paths are relative to it.", dir.display());
    }
    if !info.skills.is_empty() {
        let _ = write!(
            text,
            "\n\n# Skills\n\nRead the one that fits with use_skill before you begin.\n\n{}",
            list(info.skills).trim_end()
        );
    }
    if !info.project_docs.is_empty() {
        let _ = write!(text, "\n\n# What the project says\n\n{}", info.project_docs);
    }
    text
}

fn may(permissions: Permissions) -> &'static str {
    match permissions {
        Permissions::ReadOnly => "you can look at files, but change nothing",
        Permissions::ReadWrite => "you can change files, but run no commands and reach no network",
        Permissions::Full => "you can change files, run commands and reach the network",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it() {
        let skill = Skill {
            name: "forms".to_owned(),
            description: "Fill in forms".to_owned(),
            path: "skills/forms/SKILL.md".into(),
            body: String::new(),
        };
        let info = SystemInfo {
            label: "Fix the test",
            work_dir: Some(Path::new("/work")),
            permissions: Permissions::ReadWrite,
            tools: &["read_file".to_owned(), "edit_file".to_owned()],
            project_docs: "## AGENTS.md\n\nUse tabs.",
            skills: &[skill],
        };
        insta::assert_snapshot!(system_prompt(&info), @r#"
        You are an agent that works on one stage of a workflow, without a person beside you. Nobody answers questions: decide what is sensible, do the work, and say in your last answer what you did, what you found, and what is still open. The stage is "Fix the test".

        Use your tools instead of guessing: look at files before you speak of them or change them, make the smallest change that does the job, and check that it works. Call tools together when one does not need what another finds. An answer without a tool call ends the stage, so give it only when you are done. Your tools: read_file, edit_file. Your permissions are "read-write": you can change files, but run no commands and reach no network. The working directory is /work; paths are relative to it.

        # Skills

        Read the one that fits with use_skill before you begin.

        - forms: Fill in forms

        # What the project says

        ## AGENTS.md

        Use tabs.
        "#);
    }

    #[test]
    fn little_of_it() {
        insta::assert_snapshot!(system_prompt(&SystemInfo::default()), @"You are an agent that works on one stage of a workflow, without a person beside you. Nobody answers questions: decide what is sensible, do the work, and say in your last answer what you did, what you found, and what is still open.");
    }
}
