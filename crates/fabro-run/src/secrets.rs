//! Secrets are never recorded: those among the variables that a run.toml sets stay in the
//! environment, and input that holds one is refused.

use std::collections::BTreeMap;

use fabro_config::expand_variables;
use fabro_redact::{Redactor, is_secret_name};
use serde_json::Value;

use crate::SetupError;

/// Values of variables, by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// A variable of the environment of this process.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variables of the environment that are UTF-8.
pub(crate) fn text_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The variables as scripts see them, with `$NAME` replaced by the value from the environment.
pub(crate) fn expand_env(env: &Variables) -> Result<Variables, SetupError> {
    expand_env_with(env, variable)
}

/// Values of settings with `$NAME` replaced by the value from the environment. `owner` names the
/// setting for messages.
pub(crate) fn expand_all<'v, C: FromIterator<(String, String)>>(
    owner: &str,
    values: impl IntoIterator<Item = (&'v String, &'v String)>,
) -> Result<C, SetupError> {
    let expand = |(name, value): (&String, &String)| {
        let value = expand_variables(value, variable)
            .map_err(|error| SetupError::new(format!("{owner}: {error}"), "set the variable"))?;
        Ok((name.clone(), value))
    };
    values.into_iter().map(expand).collect()
}

fn expand_env_with(
    env: &Variables,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Variables, SetupError> {
    let mut expanded = env.clone();
    for (name, value) in &mut expanded {
        *value = expand_variables(value, &lookup).map_err(|missing| {
            SetupError::new(
                format!("`{name}` of [run.sandbox.env]: {missing}"),
                "set the variable; a secret in a run.toml is not stored with the run, so a resume needs it too",
            )
        })?;
    }
    Ok(expanded)
}

/// Splits the variables into those that are stored with the run and the secrets that are not. A
/// literal secret is stored as a reference to the environment variable of the same name.
pub(crate) fn without_secrets(env: &Variables) -> Result<(Variables, Variables), SetupError> {
    let mut kept = Variables::new();
    let mut secrets = Variables::new();
    for (name, value) in env {
        let reference = format!("${{{name}}}");
        // Without an error it has no reference in it, so it is a literal.
        let literal = expand_variables(value, |_| None).ok().filter(|_| is_secret(name, value));
        let Some(literal) = literal else {
            kept.insert(name.clone(), value.clone());
            continue;
        };
        if expand_variables(&reference, |_| None).is_ok() {
            return Err(SetupError::new(
                format!(
                    "`{name}` of [run.sandbox.env] holds a secret, and settings are stored with each run"
                ),
                "put it into an environment variable, and write `$NAME`",
            ));
        }
        kept.insert(name.clone(), reference);
        secrets.insert(name.clone(), literal);
    }
    Ok((kept, secrets))
}

fn is_secret(name: &str, value: &str) -> bool {
    !value.is_empty() && (is_secret_name(name) || Redactor::default().redact(value) != value)
}

/// Refuses text that holds a secret that `redactor` knows. `what` names the text: `the answer`.
pub(crate) fn refuse_secret(redactor: &Redactor, what: &str, text: &str) -> Result<(), SetupError> {
    let Some(name) = redactor.value_in(text) else { return Ok(()) };
    let message =
        format!("{what} holds the value of the secret `{name}`, and would be stored with the run");
    let fix = if variable(name).is_some() {
        format!("leave it out: scripts inherit the environment, and can read ${name} there")
    } else {
        "leave it out: what needs it reads it from the settings".to_owned()
    };
    Err(SetupError::new(message, fix))
}

/// The same for named values, and their names. `all` names them together: `the inputs`.
pub(crate) fn refuse_secrets<'v>(
    redactor: &Redactor,
    all: &str,
    values: impl IntoIterator<Item = (&'v String, &'v Value)>,
) -> Result<(), SetupError> {
    for (name, value) in values {
        refuse_secret(redactor, &format!("a name in {all}"), name)?;
        refuse_secret(redactor, &format!("`{name}` of {all}"), &value.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn literal_secrets_are_stored_as_references_to_the_environment() {
        let original = env(&[
            ("API_TOKEN", "t0$$p-secret"),
            ("EMPTY_TOKEN", ""),
            ("LEVEL", "info"),
            ("OTHER_TOKEN", "$MINE"),
            ("PLAIN", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ]);
        let (kept, secrets) = without_secrets(&original).unwrap();
        let expected = env(&[
            ("API_TOKEN", "${API_TOKEN}"),
            ("EMPTY_TOKEN", ""),
            ("LEVEL", "info"),
            ("OTHER_TOKEN", "$MINE"),
            ("PLAIN", "${PLAIN}"),
        ]);
        assert_eq!(kept, expected);
        assert_eq!(secrets["API_TOKEN"], "t0$p-secret");
        let known =
            |name: &str| secrets.get(name).cloned().or((name == "MINE").then(|| "mine".to_owned()));
        // What a resume sees is what the run saw.
        assert_eq!(
            expand_env_with(&kept, known).unwrap(),
            expand_env_with(&original, known).unwrap()
        );
        let missing = expand_env_with(&kept, |_| None).unwrap_err().to_string();
        assert!(missing.contains("`API_TOKEN` is not set"), "{missing}");
    }

    #[test]
    fn a_secret_whose_name_is_not_a_variable_name_is_refused() {
        assert!(without_secrets(&env(&[("API-TOKEN", "secret")])).is_err());
    }
}
