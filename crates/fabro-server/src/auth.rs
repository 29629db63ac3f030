//! Who may do what: tokens, and the roles they stand for.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fabro_events::AnsweredBy;
use rustix::process::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::problem::Problem;

/// What the holder of a token may do. Each role may do what those before it may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See runs, with everything that they recorded.
    Read,
    /// Answer gates.
    Answer,
    /// Send messages to agents; start, resume, cancel, fork and rewind runs.
    Admin,
}

impl Role {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Answer => "answer",
            Self::Admin => "admin",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
#[error("the key file {} cannot be used: {source}", path.display())]
pub struct KeyError {
    path: PathBuf,
    source: io::Error,
}

/// The tokens that a server takes.
#[derive(Clone, Debug)]
pub struct Tokens {
    tokens: Vec<(Role, String)>,
}

/// The file of a store's directory with the key that its tokens are made from.
pub const KEY_FILE: &str = "server.key";

/// The length of a key, in bytes.
const KEY: usize = 32;

impl Tokens {
    /// The tokens of these roles for a store. They are made from a random key in the file
    /// [`KEY_FILE`] of its directory, which is created for its owner alone, so that a restart of the
    /// server ends no login. Who removes the file makes every token invalid at the next start. A file that others may
    /// read or write, or that does not belong to the store's owner, is refused.
    ///
    /// # Errors
    ///
    /// The file cannot be read, written, or has no key.
    pub fn open(store_dir: &Path, roles: &[Role]) -> Result<Self, KeyError> {
        let path = store_dir.join(KEY_FILE);
        match key(&path) {
            Ok(key) => Ok(Self::of(&key, roles)),
            Err(source) => Err(KeyError { path, source }),
        }
    }

    fn of(key: &[u8; KEY], roles: &[Role]) -> Self {
        let token = |role: &Role| {
            let inner = Sha256::new().chain_update(key).chain_update(role.as_str()).finalize();
            let outer = Sha256::new().chain_update(key).chain_update(inner).finalize();
            (*role, URL_SAFE_NO_PAD.encode(outer))
        };
        Self { tokens: roles.iter().map(token).collect() }
    }

    /// The roles with their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (Role, &str)> {
        self.tokens.iter().map(|(role, token)| (*role, token.as_str()))
    }

    /// The role of a token; `None` when it is not one of these.
    pub fn role_of(&self, token: &str) -> Option<Role> {
        // Hashes are compared, so that the time tells nothing about the token.
        let presented = Sha256::digest(token);
        let is_it = |known: &str| Sha256::digest(known) == presented;
        self.tokens.iter().find(|(_, known)| is_it(known)).map(|(role, _)| *role)
    }
}

/// The prefix of the key's text, by which recorded text is redacted.
const KEY_PREFIX: &str = "fabro_key_";

/// The maximum size of a key file, in bytes.
const MAX_KEY_FILE: u64 = 256;

/// Reads the key from its file, or creates it. A key of an earlier version has no prefix and gets it.
fn key(path: &Path) -> io::Result<[u8; KEY]> {
    if let Some((key, has_prefix)) = read_key(path)? {
        if !has_prefix {
            write_key(path, &key, |new| new.persist(path))?;
        }
        return Ok(key);
    }
    let mut key = [0; KEY];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    match write_key(path, &key, |new| new.persist_noclobber(path)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let made = read_key(path)?.ok_or(error)?;
            Ok(made.0)
        }
        written => written.map(|()| key),
    }
}

/// Writes the key file atomically, readable by its owner only.
fn write_key(
    path: &Path,
    key: &[u8; KEY],
    put: impl FnOnce(NamedTempFile) -> Result<fs::File, tempfile::PersistError>,
) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut new =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o600)).tempfile_in(dir)?;
    new.write_all(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(key)).as_bytes())?;
    new.as_file().sync_all()?;
    put(new).map(drop).map_err(|failed| failed.error)
}

/// Reads the key, and whether it has the prefix; `None` if the file does not exist. A FIFO is refused and does not
/// block.
fn read_key(path: &Path) -> io::Result<Option<([u8; KEY], bool)>> {
    let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message);
    let nonblock = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let flags = nonblock.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(invalid("it is not a regular file; remove it"));
    }
    let store = fs::metadata(path.parent().unwrap_or(Path::new(".")))?;
    if ![store.uid(), geteuid().as_raw()].contains(&found.uid()) {
        return Err(invalid("it does not belong to the owner of the store; remove it"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(invalid("other users may read or write it; remove it, which ends all logins"));
    }
    let mut text = String::new();
    file.take(MAX_KEY_FILE).read_to_string(&mut text)?;
    let text = text.trim();
    let bytes = text.strip_prefix(KEY_PREFIX).unwrap_or(text);
    let key = URL_SAFE_NO_PAD.decode(bytes).ok().and_then(|bytes| bytes.try_into().ok());
    let key = key.ok_or_else(|| invalid("it contains no valid key; remove it"))?;
    Ok(Some((key, text.starts_with(KEY_PREFIX))))
}

/// How a request was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// By a cookie, which a browser sends also where another page made it.
    pub(crate) by_cookie: bool,
}

impl Caller {
    /// The name that is recorded with its actions: that of its token.
    pub(crate) fn name(&self) -> &str {
        self.role.as_str()
    }

    /// The author of its answers, as it is recorded.
    pub(crate) fn answered_by(self) -> AnsweredBy {
        let channel = if self.by_cookie { "page" } else { "http" };
        AnsweredBy::new(self.name(), channel)
    }
}

/// Refuses a page to who may not do what it offers.
pub(crate) fn permitted(role: Role, needed: Role) -> Result<(), Problem> {
    if role >= needed {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "role_insufficient",
        format!("this needs the role {needed}, and the token has {role}"),
        format!("use a token with the role {needed}"),
    ))
}

/// Who sends a request; `None` without a valid token.
pub(crate) fn caller(headers: &HeaderMap, cookie_name: &str, tokens: &Tokens) -> Option<Caller> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value
            .to_str()
            .ok()?
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let role = tokens.role_of(token?.1.trim())?;
        return Some(Caller { role, by_cookie: false });
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|it| it.split_once('='));
    let role = pairs.find_map(|(name, value)| {
        (name.trim() == cookie_name).then(|| tokens.role_of(value.trim())).flatten()
    })?;
    Some(Caller { role, by_cookie: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Role; 3] = [Role::Read, Role::Answer, Role::Admin];

    #[test]
    fn tokens_survive_a_restart_and_stand_for_one_role() {
        let dir = tempfile::tempdir().unwrap();
        let first = Tokens::open(dir.path(), &ALL).unwrap();
        let second = Tokens::open(dir.path(), &[Role::Read]).unwrap();
        for (role, token) in first.iter() {
            assert_eq!(token.len(), 43);
            assert_eq!(first.role_of(token), Some(role));
            let known = (role == Role::Read).then_some(Role::Read);
            assert_eq!(second.role_of(token), known, "{role}");
        }
        assert_eq!(first.role_of(""), None);
        fs::remove_file(dir.path().join(KEY_FILE)).unwrap();
        let third = Tokens::open(dir.path(), &ALL).unwrap();
        assert!(first.iter().all(|(_, token)| third.role_of(token).is_none()));
        fs::write(dir.path().join(KEY_FILE), "short").unwrap();
        assert!(Tokens::open(dir.path(), &ALL).is_err());
    }

    #[test]
    fn the_key_file_is_private_and_has_the_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_FILE);
        let tokens = || Tokens::open(dir.path(), &ALL).unwrap().tokens;
        let made = tokens();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(KEY_PREFIX), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A key of an earlier version.
        fs::write(&path, text.trim_start_matches(KEY_PREFIX)).unwrap();
        assert_eq!(tokens(), made);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let refused = || Tokens::open(dir.path(), &ALL).unwrap_err().to_string();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(refused().contains("other users may read or write it"), "{}", refused());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(refused().contains("does not belong to the owner of the store"));
        }
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = Tokens::open(dir.path(), &ALL).unwrap_err().to_string();
        assert!(error.ends_with("it is not a regular file; remove it"), "{error}");
    }

    #[test]
    fn servers_that_start_concurrently_share_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<_> = std::thread::scope(|scope| {
            let start = || Tokens::open(dir.path(), &ALL).unwrap().tokens;
            let started: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            started.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(all.iter().all(|tokens| *tokens == all[0]));
    }

    #[test]
    fn a_caller_has_a_bearer_token_or_a_cookie() {
        let tokens = Tokens::of(&[7; KEY], &ALL);
        let token = |role| tokens.iter().find(|(it, _)| *it == role).unwrap().1.to_owned();
        let check = |name: header::HeaderName, value: String, expect: Option<(Role, bool)>| {
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            let caller = caller(&headers, "fabro-1", &tokens);
            assert_eq!(caller.map(|it| (it.role, it.by_cookie)), expect, "{value}");
        };
        let admin = token(Role::Admin);
        let read = token(Role::Read);
        check(header::AUTHORIZATION, format!("Bearer {admin}"), Some((Role::Admin, false)));
        check(header::AUTHORIZATION, format!("bearer {read}"), Some((Role::Read, false)));
        check(header::AUTHORIZATION, admin.clone(), None);
        check(header::AUTHORIZATION, "Bearer ".to_owned(), None);
        check(header::COOKIE, format!("a=b; fabro-1={read}"), Some((Role::Read, true)));
        check(header::COOKIE, format!("fabro-2={read}"), None);
        check(header::COOKIE, format!("fabro-1=x{read}"), None);
    }
}
