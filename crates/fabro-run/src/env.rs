//! The variables that a run.toml sets. Secrets among them are not kept with the run.

use std::collections::BTreeMap;

use fabro_config::expand_variables;
use fabro_redact::{Redactor, is_secret_name};

use crate::SetupError;

/// Values of variables, by name.
pub type Variables = BTreeMap<String, String>;

/// The variables as scripts see them: those of the environment put in for `$NAME`.
pub fn expanded(env: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, SetupError> {
    expanded_by(env, |name| std::env::var(name).ok())
}

fn expanded_by(
    env: &BTreeMap<String, String>,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, SetupError> {
    let expand = |(name, value): (&String, &String)| {
        let value = expand_variables(value, &lookup).map_err(|missing| {
            SetupError::new(
                format!("`{name}` of [run.sandbox.env]: {missing}"),
                "set the variable; a secret that stands in a run.toml is not kept with the run, so a resume needs it too",
            )
        });
        value.map(|value| (name.clone(), value))
    };
    env.iter().map(expand).collect()
}

/// What is kept of the variables with the run, and the secrets that are not: a secret that is
/// written out becomes a reference to the variable of the environment of the same name.
pub fn without_secrets(
    env: &BTreeMap<String, String>,
) -> Result<(Variables, Variables), SetupError> {
    let (mut kept, mut secrets) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in env {
        let reference = format!("${{{name}}}");
        // Without an error nothing in it is a reference, so it is written out.
        let written = expand_variables(value, |_| None);
        let (Ok(written), true) = (written, is_secret(name, value)) else {
            kept.insert(name.clone(), value.clone());
            continue;
        };
        if expand_variables(&reference, |_| None).is_ok() {
            return Err(SetupError::new(
                format!(
                    "`{name}` of [run.sandbox.env] holds a secret, and settings are kept with each run"
                ),
                "put it into a variable of the environment, and write `$NAME`",
            ));
        }
        kept.insert(name.clone(), reference);
        secrets.insert(name.clone(), written);
    }
    Ok((kept, secrets))
}

fn is_secret(name: &str, value: &str) -> bool {
    !value.is_empty() && (is_secret_name(name) || Redactor::default().redact(value) != value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn secrets_are_left_to_the_environment() {
        let written = env(&[
            ("API_TOKEN", "t0$$p-secret"),
            ("EMPTY_TOKEN", ""),
            ("LEVEL", "info"),
            ("OTHER_TOKEN", "$MINE"),
            ("PLAIN", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ]);
        let (kept, secrets) = without_secrets(&written).unwrap();
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
        assert_eq!(expanded_by(&kept, known).unwrap(), expanded_by(&written, known).unwrap());
        let missing = expanded_by(&kept, |_| None).unwrap_err().to_string();
        assert!(missing.contains("`API_TOKEN` is not set"), "{missing}");
    }

    #[test]
    fn a_secret_that_no_variable_can_hold_is_refused() {
        assert!(without_secrets(&env(&[("API-TOKEN", "secret")])).is_err());
    }
}
