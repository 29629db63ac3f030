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
            AuthError::RegistrationFailed(reason) => format!(
                "the authorization server registers no new client: give it a client id ({})",
                brief(&reason)
            ),
            error => brief(&error.to_string()),
        })
    }
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
        state.start_authorization(asked).await?;
        let address = state.get_authorization_url().await?;
        let redirect = Url::parse(&redirect).map_err(|error| LoginError::Url(error.to_string()))?;
        Ok(Self { state, address, redirect, listener })
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
        let came = timeout(limit, self.callback()).await;
        let (mut browser, callback) = came.map_err(|_| LoginError::TooLate(limit))??;
        let refused = callback.query_pairs().find(|(name, _)| name == "error");
        let ended = match refused {
            Some((_, code)) => {
                Err(LoginError::Refused(format!("the login was refused: {}", brief(&code))))
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

    /// The address that the browser comes back to, and the browser.
    async fn callback(&self) -> Result<(TcpStream, Url), LoginError> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // Others may connect too, and say nothing.
            let Ok(Ok(Some((mut stream, path)))) =
                timeout(Duration::from_secs(5), first_line(stream)).await
            else {
                continue;
            };
            match self.redirect.join(&path) {
                Ok(url) if url.path() == self.redirect.path() => return Ok((stream, url)),
                // A browser asks for an icon as well.
                _ => {
                    let page = page("404 Not Found", "Nothing is here.");
                    let _ = stream.write_all(page.as_bytes()).await;
                }
            }
        }
    }
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
