//! Names that suggest a secret.

/// Whether the name of an environment variable, a header or a setting suggests that its value is a
/// secret: `ANTHROPIC_API_KEY`, `GH_TOKEN`, `DB_PASSWORD`, `AWS_SECRET_ACCESS_KEY`, `clientSecret`,
/// `x-api-key`. Names of paths and limits (`AWS_WEB_IDENTITY_TOKEN_FILE`, `MAX_TOKENS`,
/// `TOKEN_LIMIT`), of public keys and of `PWD` do not.
///
/// ```
/// assert!(fabro_redact::is_secret_name("OPENAI_API_KEY"));
/// assert!(!fabro_redact::is_secret_name("OPENAI_BASE_URL"));
/// ```
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> =
        name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let Some((last, others)) = words.split_last() else { return false };
    if PROPERTIES.contains(last) || matches!(name.as_str(), "PWD" | "OLDPWD") {
        return false;
    }
    let is_key = matches!(*last, "KEY" | "KEYS")
        && others.last().is_none_or(|before| !PLAIN_KEYS.contains(before));
    is_key
        || SECRETS.contains(last)
        || words.iter().any(|word| PARTS.iter().any(|part| word.ends_with(part)))
}

/// Last words of names that are of a property of a secret, not of the secret.
#[rustfmt::skip]
const PROPERTIES: &[&str] = &[
    "COUNT", "DIR", "DIRECTORY", "ENABLED", "ENDPOINT", "EXPIRES", "EXPIRY", "FILE", "FORMAT",
    "HELPER", "HOST", "ID", "LENGTH", "LIMIT", "MAX", "MODE", "NAME", "PATH", "PORT", "PROMPT",
    "SOCK", "TIMEOUT", "TTL", "TYPE", "URI", "URL",
];

/// Last words that name a secret by themselves.
#[rustfmt::skip]
const SECRETS: &[&str] = &[
    "AUTH", "AUTHENTICATION", "AUTHORIZATION", "BEARER", "COOKIE", "DSN", "JWT", "PAT", "PASS",
    "PWD",
];

/// Ends of words that name secrets at any position.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "ACCESSKEY", "APIKEY", "AUTHKEY", "CREDENTIAL", "CREDENTIALS", "PASSPHRASE", "PASSWD",
    "PASSWORD", "PASSWORDS", "PRIVATEKEY", "SECRET", "SECRETKEY", "SECRETS", "TOKEN",
];

/// Words before `KEY` that make it no secret.
const PLAIN_KEYS: [&str; 8] =
    ["CACHE", "FOREIGN", "HOST", "PARTITION", "PRIMARY", "PUB", "PUBLIC", "SORT"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognised() {
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_KEY",
            "GH_TOKEN",
            "NPM_TOKEN",
            "GITHUB_PAT",
            "PGPASSWORD",
            "DB_PASSWORD",
            "MYSQL_PWD",
            "SMTP_PASS",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "JWT_SECRET",
            "apiKey",
            "clientSecret",
            "x-api-key",
            "Authorization",
            "Set-Cookie",
            "SENTRY_DSN",
            "SSH_PRIVATE_KEY",
            "FABRO_TOKEN",
            "TOKEN",
            "KEY",
            "SECRET_KEY_BASE",
            "PASSWORD_2",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_secret() {
        for name in [
            "",
            "_",
            "PATH",
            "HOME",
            "PWD",
            "OLDPWD",
            "LANG",
            "MAX_TOKENS",
            "TOKEN_LIMIT",
            "TOKENIZERS_PARALLELISM",
            "SSH_AUTH_SOCK",
            "OPENAI_BASE_URL",
            "KEYBOARD",
            "MONKEY",
            "SECRETARY",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "PUBLIC_KEY",
            "CACHE_KEY",
            "COMPASS",
            "AUTHOR",
            "XAUTHORITY",
            "GIT_ASKPASS",
            "AWS_PROFILE",
            "KEY_PATH",
            "PATTERN",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
