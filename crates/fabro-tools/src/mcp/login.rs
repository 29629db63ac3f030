//! Logins at servers that ask for one by OAuth: a person logs in once, in a browser, and the tokens
//! are kept in a file, from which sessions take and renew them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, CredentialRefreshGuard, CredentialStore,
    OAuthState, StoredCredentials,
};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::mcp::error::brief;
use crate::mcp::http::{check_url, install_crypto};

/// How the authorization server calls us.
const CLIENT: &str = "Fabro";

/// The longest first line of a browser's request, in bytes.
const MAX_LINE: u64 = 16 * 1024;

/// A login that has begun: a person opens [`address`](Self::address) in a browser of this machine and
/// agrees there. The browser then comes back to a port of this machine, which is open until
/// [`finish`](Self::finish) has ended.
pub struct Login {
    state: OAuthState,
    address: String,
    /// What the answer repeats: another one is not of this login.
    token: String,
    redirect: Url,
    listener: TcpListener,
}

/// What a login is asked for, besides the address of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// The scopes; those that the server names when empty.
    pub scopes: Vec<String>,
    /// The client id that the authorization server knows already; registered there without it.
    pub client_id: Option<String>,
}

/// Why a login failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The address is not one of a server.
    #[error("{0}")]
    Url(String),
    /// No port can be opened, or the file of the login cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server, or its authorization server, did not take part.
    #[error("{0}")]
    Refused(String),
    /// The authorization server registers no client by itself; why.
    #[error("the authorization server registers no new client: {0}")]
    NoClient(String),
    /// The person, or the authorization server, did not agree; why.
    #[error("the login was refused: {0}")]
    Denied(String),
    /// What came back before the timeout had another `state` than the one that was sent.
    #[error("no login within {} s: what came back was the answer to another login (its `state` is missing or differs)", .0.as_secs())]
    OtherState(Duration),
    /// The browser has not come back with a login before the timeout.
    #[error("no login within {} s", .0.as_secs())]
    TooLate(Duration),
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Refused(match error {
            AuthError::NoAuthorizationSupport => {
                "the server offers no login by OAuth: set its Authorization header".to_owned()
            }
            AuthError::RegistrationFailed(reason) => return not_registered(&reason),
            error => brief(&error.to_string()),
        })
    }
}

fn not_registered(reason: &str) -> LoginError {
    // Found while registering, but true of any client.
    let no_pkce = AuthError::PkceUnsupported.to_string();
    if reason.ends_with(&no_pkce) {
        return LoginError::Refused(no_pkce);
    }
    let prefixes = ["Dynamic registration failed: ", "Registration failed: "];
    let reason = prefixes.iter().fold(reason, |it, prefix| it.strip_prefix(prefix).unwrap_or(it));
    LoginError::NoClient(brief(reason))
}

impl Login {
    /// Finds the authorization server of an MCP server and registers there. The login will be kept in
    /// the directory `logins`.
    ///
    /// # Errors
    ///
    /// The server or its authorization server cannot be reached, or offers no login.
    pub async fn begin(
        url: &str,
        request: LoginRequest,
        logins: &Path,
    ) -> Result<Self, LoginError> {
        check_url(url).map_err(LoginError::Url)?;
        install_crypto();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let redirect = format!("http://{}/callback", listener.local_addr()?);
        let mut manager = AuthorizationManager::new(url).await?;
        manager.set_credential_store(LoginFile::of(logins, url));
        let mut state = OAuthState::Unauthorized(manager);
        let mut asked = AuthorizationRequest::new(&redirect).with_client_name(CLIENT);
        asked.scopes = request.scopes;
        asked.client_id = request.client_id;
        if let Err(error) = state.start_authorization(asked).await {
            return Err(Self::not_begun(&state, error).await);
        }
        let address = state.get_authorization_url().await?;
        let parsed = |text: &str| {
            Url::parse(text).map_err(|error| LoginError::Refused(brief(&error.to_string())))
        };
        let redirect = parsed(&redirect)?;
        let token = query(&parsed(&address)?, "state").unwrap_or_default();
        Ok(Self { state, address, token, redirect, listener })
    }

    /// Why it could not begin. Without documents of an authorization server, the one that was asked to
    /// register a client is only a guess.
    async fn not_begun(state: &OAuthState, error: AuthError) -> LoginError {
        if let (AuthError::RegistrationFailed(_), OAuthState::Unauthorized(manager)) =
            (&error, state)
        {
            let found = manager.resolve_metadata().await;
            if found.is_ok_and(|found| !found.source.is_discovered()) {
                return AuthError::NoAuthorizationSupport.into();
            }
        }
        error.into()
    }

    /// The address to open in a browser.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the person has agreed, and keeps the login.
    ///
    /// # Errors
    ///
    /// The person refused or did not come in time, the authorization server refuses the answer, or the
    /// login cannot be kept.
    pub async fn finish(mut self, limit: Duration) -> Result<(), LoginError> {
        let mut is_other = false;
        let came = timeout(limit, self.callback(&mut is_other)).await;
        let Ok(came) = came else {
            let late = if is_other { LoginError::OtherState } else { LoginError::TooLate };
            return Err(late(limit));
        };
        let (mut browser, callback) = came?;
        let ended = match query(&callback, "error") {
            Some(code) => {
                let why = query(&callback, "error_description");
                let why = why.map_or(code.clone(), |why| format!("{code}: {why}"));
                Err(LoginError::Denied(brief(&why)))
            }
            None => self.state.handle_callback_url(callback.as_str()).await.map_err(Into::into),
        };
        let (status, text) = match &ended {
            Ok(()) => ("200 OK", "You are logged in. You can close this page."),
            Err(_) => ("400 Bad Request", "The login failed. The terminal says why."),
        };
        // The person may have closed the page.
        let _ = browser.write_all(page(status, text).as_bytes()).await;
        ended
    }

    /// The address that the browser comes back to, and the browser; says whether answers to other logins
    /// came, which any page in the browser can send here.
    async fn callback(&self, is_other: &mut bool) -> Result<(TcpStream, Url), LoginError> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // Others may connect too, and say nothing.
            let Ok(Ok(Some((mut stream, path)))) =
                timeout(Duration::from_secs(5), first_line(stream)).await
            else {
                continue;
            };
            match self.redirect.join(&path) {
                Ok(url) if url.path() == self.redirect.path() => {
                    if query(&url, "state").is_some_and(|state| state == self.token) {
                        return Ok((stream, url));
                    }
                    *is_other = true;
                    let text = "This answer belongs to another login.";
                    let _ = stream.write_all(page("400 Bad Request", text).as_bytes()).await;
                }
                // A browser asks for an icon as well.
                _ => {
                    let page = page("404 Not Found", "Nothing is here.");
                    let _ = stream.write_all(page.as_bytes()).await;
                }
            }
        }
    }
}

/// A parameter of an address.
fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The path that a browser asks for.
async fn first_line(mut stream: TcpStream) -> io::Result<Option<(TcpStream, String)>> {
    let mut line = String::new();
    {
        let mut reader = BufReader::new(tokio::io::AsyncReadExt::take(&mut stream, MAX_LINE));
        reader.read_line(&mut line).await?;
    }
    let mut words = line.split(' ');
    let path = words.next().filter(|method| *method == "GET").and(words.next());
    let path = path.filter(|path| path.starts_with('/')).map(str::to_owned);
    Ok(path.map(|path| (stream, path)))
}

fn page(status: &str, text: &str) -> String {
    let length = text.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{text}"
    )
}

/// What gives requests the tokens of a login that is kept; `None` when there is none.
///
/// # Errors
///
/// The file of the login cannot be read, or the authorization server cannot be found any more.
pub(crate) async fn kept(
    url: &str,
    logins: &Path,
) -> Result<Option<AuthorizationManager>, LoginError> {
    let file = LoginFile::of(logins, url);
    if !file.path.exists() {
        return Ok(None);
    }
    let mut manager = AuthorizationManager::new(url).await?;
    manager.set_credential_store(file);
    Ok(manager.initialize_from_store().await?.then_some(manager))
}

/// Whether a login at this server is kept.
pub fn is_logged_in(url: &str, logins: &Path) -> bool {
    LoginFile::of(logins, url).path.exists()
}

/// Forgets the login at a server; false when there was none.
///
/// # Errors
///
/// The file of the login cannot be removed.
pub fn log_out(url: &str, logins: &Path) -> io::Result<bool> {
    match fs::remove_file(LoginFile::of(logins, url).path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The file of the login at one server; only its owner can read it.
#[derive(Clone, Debug)]
struct LoginFile {
    path: PathBuf,
}

impl LoginFile {
    fn of(logins: &Path, url: &str) -> Self {
        let digest = Sha256::digest(url.as_bytes());
        let name = u64::from_be_bytes(std::array::from_fn(|place| digest[place]));
        Self { path: logins.join(format!("{name:016x}.json")) }
    }

    fn read(&self) -> io::Result<Option<StoredCredentials>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// In one step, so that no reader sees a part of it.
    fn write(&self, credentials: &StoredCredentials) -> io::Result<()> {
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        self.make_dir()?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(credentials)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    fn make_dir(&self) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    /// Sessions of several processes may renew one token at the same time, and a used one is refused.
    fn lock(&self) -> io::Result<File> {
        self.make_dir()?;
        let lock = self.path.with_extension("lock");
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
        file.lock()?;
        Ok(file)
    }
}

fn store_error(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for LoginFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.read().map_err(store_error)
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.write(&credentials).map_err(store_error)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(store_error(error)),
            _ => Ok(()),
        }
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let file = self.clone();
        let locked = tokio::task::spawn_blocking(move || file.lock()).await.map_err(store_error)?;
        Ok(Some(CredentialRefreshGuard::new(locked.map_err(store_error)?)))
    }
}
