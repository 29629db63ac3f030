//! The files and values that a run.toml refers to, checked before a run exists.

use std::path::Path;

use crate::{GoalError, render_goal};
use fabro_config::{ConfigError, RunFile, Settings};
use fabro_llm::Script;
use fabro_types::{Diagnostic, Span};
use serde_json::{Map, Value};

use crate::read_text;
use crate::secrets::without_secrets;
use crate::services::artifact_rules;
use crate::unread_inputs::{UnreadInput, unread_inputs};

/// The rule of findings about values that cannot be used.
const RULE: &str = "setting-value";

/// The errors of a run.toml that do not depend on the environment: in its goal, its model script, its
/// agent settings, and secrets in its variables.
pub fn check_run_file(file: &RunFile, home: Option<&Path>) -> Vec<Diagnostic> {
    let goal = goal_of(file, &file.config.inputs, home).err();
    let script = model_script_of(file, home).err();
    let agent = file.settings(Settings::default(), home).err().map(|error| {
        Diagnostic::error(RULE, file.span_of("run.agent"), error.to_string())
            .with_fix("correct the path, which is relative to this file, or the file that it names")
    });
    let env = without_secrets(&file.config.env).err().map(|error| {
        Diagnostic::error(RULE, file.span_of("run.sandbox.env"), error.message).with_fix(error.fix)
    });
    let artifacts = artifact_rules(&file.config.artifacts).err().map(|error| {
        Diagnostic::error(RULE, file.span_of("run.artifacts"), error.message).with_fix(error.fix)
    });
    [goal, script, agent, env, artifacts].into_iter().flatten().collect()
}

/// Warnings for the inputs of a run.toml that neither its goal nor one of these texts reads: the
/// workflow and the files that it names.
pub fn check_inputs<'a>(
    file: &RunFile,
    home: Option<&Path>,
    texts: impl IntoIterator<Item = &'a str>,
) -> Vec<Diagnostic> {
    let goal = file.goal(home).ok().flatten().unwrap_or_default();
    let mut all: Vec<&str> = vec![&goal];
    for text in texts {
        all.push(text);
    }
    unread_findings(&file.config.inputs, all, |name| file.span_of(&format!("run.inputs.{name}")))
}

/// Warnings, at `span`, for the inputs of a command line that none of these texts reads.
pub fn check_given_inputs<'a>(
    inputs: &Map<String, Value>,
    span: Span,
    texts: impl IntoIterator<Item = &'a str>,
) -> Vec<Diagnostic> {
    unread_findings(inputs, texts, |_| span)
}

fn unread_findings<'a>(
    inputs: &Map<String, Value>,
    texts: impl IntoIterator<Item = &'a str>,
    span_of: impl Fn(&str) -> Span,
) -> Vec<Diagnostic> {
    let finding = |input: UnreadInput| {
        let span = span_of(&input.name);
        Diagnostic::warning("unread-input", span, input.message()).with_fix(input.fix)
    };
    unread_inputs(inputs, texts).into_iter().map(finding).collect()
}

/// The goal that a run.toml sets, with these inputs filled in; `None` when it sets none.
///
/// # Errors
/// The file that it names cannot be read, or it cannot be rendered.
pub(crate) fn goal_of(
    file: &RunFile,
    inputs: &Map<String, Value>,
    home: Option<&Path>,
) -> Result<Option<String>, Diagnostic> {
    const SETTING: &str = "run.goal";
    let Some(written) = &file.config.goal else { return Ok(None) };
    let named = written.strip_prefix('@').filter(|rest| !rest.starts_with('@')).map(str::trim);
    let goal = file.goal(home).map_err(|error| {
        let message = match (&error, named) {
            (ConfigError::Read { source, .. }, Some(named)) => {
                format!("`run.goal` names the file `{named}`: {}", crate::sources::reason(source))
            }
            _ => format!("`run.goal`: {error}"),
        };
        Diagnostic::error(RULE, file.span_of(SETTING), message).with_fix(
            "create the file, correct the path, which is relative to this file, or write @@ for text that begins with @",
        )
    })?;
    let text = goal.unwrap_or_default();
    let goal = render_goal(&text, inputs).map_err(|GoalError { message, span, fix }| {
        let (span, message) = match named {
            Some(named) => {
                let before = text.as_bytes().iter().take(span.start);
                let line = before.filter(|byte| **byte == b'\n').count() + 1;
                (file.span_of(SETTING), format!("{named}, line {line}: {message}"))
            }
            None => (file.span_within(SETTING, &text, span), message),
        };
        Diagnostic::error(RULE, span, message).with_fix(fix)
    })?;
    Ok(Some(goal))
}

/// The text of the model script that a run.toml names; `None` when it names none.
///
/// # Errors
/// It cannot be read, or is not a model script.
pub(crate) fn model_script_of(
    file: &RunFile,
    home: Option<&Path>,
) -> Result<Option<String>, Diagnostic> {
    const SETTING: &str = "run.model.script";
    let (Some(path), Some(named)) = (file.model_script(home), &file.config.model.script) else {
        return Ok(None);
    };
    let named = named.display();
    let error = |message: String, fix: &str| {
        Diagnostic::error(RULE, file.span_of(SETTING), message).with_fix(fix)
    };
    let text = read_text(&path).map_err(|reason| {
        let fix = "create the file, or correct the path, which is relative to this file";
        error(format!("`{SETTING}` names the file `{named}`: {reason}"), fix)
    })?;
    if let Err(reason) = Script::from_json(&text) {
        let message = format!("`{SETTING}` names `{named}`, which is not a model script: {reason}");
        return Err(error(message, "fix that file"));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use fabro_config::load;

    use super::*;

    /// The findings for a run.toml with these lines, beside `goal.md` and `bad.json`.
    #[track_caller]
    fn check(lines: &str, expect: &str) {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("run.toml", &format!("_version = 1\n{lines}\n"));
        write("goal.md", "Fix it:\n{{ inputs.q }}\n");
        write("bad.json", "{\"a\": 3}");
        let file = load(&dir.path().join("run.toml")).unwrap();
        let findings = check_run_file(&file, None);
        let text = findings.iter().map(|it| {
            let at = &file.warnings.text[it.span.start..it.span.end];
            format!("{} at {at}: {} ({})", it.rule, it.message, it.fix.as_deref().unwrap())
        });
        let text = text.collect::<Vec<_>>().join("\n");
        assert_eq!(text.replace(&dir.path().display().to_string(), "DIR"), expect);
    }

    #[test]
    fn references_of_a_run_file_are_checked() {
        check("[run]\ngoal = \"Greet {{ inputs.q }}\"\n[run.inputs]\nq = 1", "");
        check("", "");
        check(
            "[run]\ngoal = \"@no.md\"",
            "setting-value at \"@no.md\": `run.goal` names the file `no.md`: no such file (create the file, correct the path, which is relative to this file, or write @@ for text that begins with @)",
        );
        check(
            "[run]\ngoal = \"Ask {{ inputs.q }}\"",
            "setting-value at inputs.q: the input `q` is not given (set `q` under [run.inputs], or as an input of the run)",
        );
        check(
            "[run]\ngoal = \"@goal.md\"",
            "setting-value at \"@goal.md\": goal.md, line 2: the input `q` is not given (set `q` under [run.inputs], or as an input of the run)",
        );
        check(
            "[run]\ngoal = \"Ask {{ inputs.q\"",
            "setting-value at {{: `{{` is not closed (add `}}`)",
        );
        check(
            "[run.model]\nscript = \"no.json\"",
            "setting-value at \"no.json\": `run.model.script` names the file `no.json`: no such file (create the file, or correct the path, which is relative to this file)",
        );
        check(
            "[run.model]\nscript = \"bad.json\"",
            "setting-value at \"bad.json\": `run.model.script` names `bad.json`, which is not a model script: line 1, column 7: invalid type: integer `3`, expected a list of turns, as [{\"text\": \"…\"}] (fix that file)",
        );
        check(
            "[[run.agent.tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://x.test/\"\nparameters = \"@no.json\"",
            "setting-value at agent: cannot read DIR/no.json: No such file or directory (os error 2) (correct the path, which is relative to this file, or the file that it names)",
        );
        check(
            "[run.sandbox.env]\n\"API-TOKEN\" = \"secret\"",
            "setting-value at [run.sandbox.env]: `API-TOKEN` of [run.sandbox.env] holds a secret, and settings are stored with each run (put it into an environment variable, and write `$NAME`)",
        );
    }
}
