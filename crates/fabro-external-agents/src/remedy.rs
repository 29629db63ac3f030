//! What a person can do about an error.

use crate::BackendError;
use crate::cli::login;

impl BackendError {
    /// What to do when the agent could not be asked at all; `None` for an error while it was working.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Missing { install, .. } => Some(install.clone()),
            Self::Exec(_) => Some("check that the program can be started".to_owned()),
            Self::NotReady { program, .. } => {
                Some(format!("start `{program}` by hand to see why, log in or repair it"))
            }
            Self::Reported { program, kind, .. } if kind.is_unavailable => {
                let login = login(program);
                Some(format!(
                    "check the login, the account and the model of `{program}`{login}, or wait and ask again"
                ))
            }
            Self::Stated { kind, error } if kind.is_unavailable => match &**error {
                Self::Failed { program, .. } => {
                    let login = login(program);
                    Some(format!("check the login and the settings of `{program}`{login}"))
                }
                error => error.remedy(),
            },
            _ => None,
        }
    }
}
