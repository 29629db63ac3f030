//! Logins by OAuth, at a server that refuses what the specification refuses.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabro_config::{McpServer, McpTransport};
use fabro_tools::mcp::{Login, LoginRequest, Servers, is_logged_in, log_out};
use insta::assert_snapshot;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What a server does wrong.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Flaw {
    #[default]
    None,
    NoDocuments,
    NoRegistration,
    PlainPkce,
    /// The authorization server is overloaded.
    NoRenewal,
}

/// An MCP server that is its own authorization server.
#[derive(Default)]
struct Server {
    origin: String,
    /// The S256 challenge of the authorization that was asked for.
    challenge: String,
    redirect: String,
    /// The tokens that are valid now.
    access: String,
    refresh: String,
    /// How many pairs of tokens were issued.
    issued: u32,
    flaw: Flaw,
    heard: Vec<String>,
}

impl Server {
    fn answer(&mut self, head: &str, body: &str) -> (&'static str, String, Value) {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let origin = self.origin.clone();
        let no_header = String::new;
        match path.as_str() {
            path if self.flaw == Flaw::NoDocuments && path != "/mcp" => {
                ("404 Not Found", no_header(), json!({}))
            }
            "/.well-known/oauth-protected-resource" => {
                let found = json!({"resource": format!("{origin}/mcp"),
                    "authorization_servers": [origin], "scopes_supported": ["tools"]});
                ("200 OK", no_header(), found)
            }
            "/.well-known/oauth-authorization-server" => {
                let pkce = if self.flaw == Flaw::PlainPkce { "plain" } else { "S256" };
                let mut found = json!({"issuer": origin,
                    "authorization_endpoint": format!("{origin}/authorize"),
                    "token_endpoint": format!("{origin}/token"),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": [pkce]});
                if self.flaw != Flaw::NoRegistration {
                    found["registration_endpoint"] = json!(format!("{origin}/register"));
                }
                ("200 OK", no_header(), found)
            }
            "/register" => {
                let asked: Value = serde_json::from_str(body).unwrap();
                self.redirect = asked["redirect_uris"][0].as_str().unwrap().to_owned();
                let name = &asked["client_name"];
                self.heard.push(format!("register {name}"));
                let client = json!({"client_id": "c1", "redirect_uris": asked["redirect_uris"]});
                ("201 Created", no_header(), client)
            }
            "/token" if self.flaw == Flaw::NoRenewal => {
                ("503 Service Unavailable", no_header(), Value::Null)
            }
            "/token" => self.token(&form(body)),
            "/mcp" => self.mcp(head, body),
            _ => ("404 Not Found", no_header(), json!({})),
        }
    }

    fn token(&mut self, asked: &BTreeMap<String, String>) -> (&'static str, String, Value) {
        let get = |name: &str| asked.get(name).cloned().unwrap_or_default();
        self.heard.push(format!("token {}", get("grant_type")));
        let is_right = match get("grant_type").as_str() {
            "authorization_code" => {
                let digest = Sha256::digest(get("code_verifier").as_bytes());
                base64_url(&digest) == self.challenge
                    && get("code") == "the-code"
                    && get("redirect_uri") == self.redirect
            }
            "refresh_token" => get("refresh_token") == self.refresh,
            _ => false,
        };
        if !is_right || get("resource") != format!("{}/mcp", self.origin) {
            return ("400 Bad Request", String::new(), json!({"error": "invalid_grant"}));
        }
        self.issued += 1;
        self.access = format!("access-{}", self.issued);
        self.refresh = format!("refresh-{}", self.issued);
        let tokens = json!({"access_token": self.access, "refresh_token": self.refresh,
            "token_type": "Bearer", "expires_in": 3600});
        ("200 OK", String::new(), tokens)
    }

    fn mcp(&mut self, head: &str, body: &str) -> (&'static str, String, Value) {
        let bearer = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_it = name.eq_ignore_ascii_case("authorization");
            is_it.then(|| value.trim().trim_start_matches("Bearer ").to_owned())
        });
        if self.access.is_empty() || bearer.as_deref() != Some(&*self.access) {
            let found = format!("{}/.well-known/oauth-protected-resource", self.origin);
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{found}\"\r\n");
            return ("401 Unauthorized", challenge, json!({}));
        }
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}),
            "tools/call" => json!({"content": [{"type": "text", "text": "seen"}]}),
            "server/discover" => {
                return ("400 Bad Request", String::new(), json!({}));
            }
            _ => return ("202 Accepted", String::new(), Value::Null),
        };
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        ("200 OK", String::new(), answer)
    }
}

fn base64_url(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - part.len()));
        for place in 0..=part.len() {
            let letter = bits >> (18 - 6 * place) & 63;
            text.push(char::from(LETTERS[letter as usize]));
        }
    }
    text
}

/// The values of a form or a query.
fn form(text: &str) -> BTreeMap<String, String> {
    let url = reqwest::Url::parse(&format!("http://x/?{text}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

async fn serve() -> (String, Arc<Mutex<Server>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let server = Server { origin: origin.clone(), ..Server::default() };
    let server = Arc::new(Mutex::new(server));
    let shared = Arc::clone(&server);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(exchange(stream, Arc::clone(&shared)));
        }
    });
    (format!("{origin}/mcp"), server)
}

async fn exchange(stream: TcpStream, server: Arc<Mutex<Server>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (head, body) = super::http::read_request(&mut stream).await?;
    let body = String::from_utf8(body).ok()?;
    let (status, headers, value) = server.lock().unwrap().answer(&head, &body);
    let text = if value.is_null() { String::new() } else { value.to_string() };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\
         connection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await.ok()
}

async fn connect(url: &str, logins: &Path) -> Servers {
    let transport = McpTransport::Http { url: url.to_owned(), headers: BTreeMap::new() };
    let server = McpServer { transport, ..McpServer::default() };
    Servers::connect([("issues".to_owned(), server)].into(), Path::new("/"), &[], Some(logins))
        .await
}

/// What a browser does after the person has agreed, or refused; returns the page it gets.
async fn agree(address: &str, server: &Mutex<Server>, answer: &str) -> String {
    let asked = form(address.split_once('?').unwrap().1);
    {
        let mut server = server.lock().unwrap();
        assert_eq!(asked["code_challenge_method"], "S256");
        assert_eq!(asked["redirect_uri"], server.redirect);
        assert_eq!(asked["resource"], format!("{}/mcp", server.origin));
        assert_eq!(asked["scope"], "tools");
        server.challenge.clone_from(&asked["code_challenge"]);
    }
    let redirect = reqwest::Url::parse(&asked["redirect_uri"]).unwrap();
    let mut browser = TcpStream::connect(redirect.socket_addrs(|| None).unwrap()[0]).await.unwrap();
    let path = redirect.path();
    let state = &asked["state"];
    let request = format!("GET {path}?{answer}&state={state} HTTP/1.1\r\nhost: x\r\n\r\n");
    browser.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    browser.read_to_string(&mut page).await.unwrap();
    page.lines().last().unwrap().to_owned()
}

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_person_logs_in_once() {
    let (url, server) = serve().await;
    let logins = tempfile::tempdir().unwrap();
    let logins = &logins.path().join("logins");
    let unknown = connect(&url, logins).await;
    assert_snapshot!(unknown.failed()[0].to_string(), @"MCP server `issues`: it asks for a login: run `fabro mcp login issues`, or set its Authorization header");

    let login = Login::begin(&url, LoginRequest::default(), logins).await.unwrap();
    let address = login.address().to_owned();
    let (page, ended) =
        tokio::join!(agree(&address, &server, "code=the-code"), login.finish(LIMIT));
    ended.unwrap();
    assert_eq!(page, "You are logged in. You can close this page.");
    assert!(is_logged_in(&url, logins));
    let mut files = std::fs::read_dir(logins).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|it| it == "json")).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let servers = connect(&url, logins).await;
    assert_eq!(servers.tools().len(), 1, "{:?}", servers.failed());
    // The server takes the token back: it is renewed.
    server.lock().unwrap().access = "another".to_owned();
    let output = super::call(&servers.tools()[0], json!({})).await;
    assert_snapshot!(super::shown(&output), @"seen");
    assert!(std::fs::read_to_string(&file).unwrap().contains("refresh-2"));
    servers.close().await;

    {
        let mut server = server.lock().unwrap();
        server.access = "another".to_owned();
        server.flaw = Flaw::NoRenewal;
    }
    let busy = connect(&url, logins).await;
    assert_snapshot!(busy.failed()[0].to_string(), @"MCP server `issues`: its login has expired, and the authorization server does not renew it at present: try again later");
    server.lock().unwrap().flaw = Flaw::None;
    // The address of the server is asked for a login anew, and this one is kept.
    assert!(is_logged_in(&url, logins));

    // The login has ended on the server's side.
    {
        let mut server = server.lock().unwrap();
        server.access = "another".to_owned();
        server.refresh = "another".to_owned();
    }
    let ended = connect(&url, logins).await;
    assert_snapshot!(ended.failed()[0].to_string(), @"MCP server `issues`: it asks for a login: run `fabro mcp login issues`, or set its Authorization header");
    assert_snapshot!(server.lock().unwrap().heard.join("\n"), @r#"
    register "Fabro"
    token authorization_code
    token refresh_token
    token refresh_token
    "#);
    assert!(log_out(&url, logins).unwrap());
    assert!(!log_out(&url, logins).unwrap());
}

#[tokio::test]
async fn logins_that_fail_say_why() {
    let (url, server) = serve().await;
    let logins = tempfile::tempdir().unwrap();
    let begin = || Login::begin(&url, LoginRequest::default(), logins.path());
    let login = begin().await.unwrap();
    let address = login.address().to_owned();
    let (page, refused) = tokio::join!(
        agree(&address, &server, "error=access_denied&error_description=Not+yours"),
        login.finish(LIMIT)
    );
    assert_eq!(page, "The login failed. The terminal says why.");
    assert_snapshot!(refused.unwrap_err(), @"the login was refused: access_denied: Not yours");
    let login = begin().await.unwrap();
    let address = login.address().to_owned();
    let (_, refused) = tokio::join!(agree(&address, &server, "code=wrong"), login.finish(LIMIT));
    assert_snapshot!(refused.unwrap_err(), @"OAuth token exchange failed: Server returned error response: invalid_grant");
    let late = begin().await.unwrap().finish(Duration::ZERO).await;
    assert_snapshot!(late.unwrap_err(), @"no login within 0 s");
    let nothing = url.replace("/mcp", "/nothing");
    server.lock().unwrap().origin = "http://127.0.0.1:9".to_owned();
    let none = Login::begin(&nothing, LoginRequest::default(), logins.path()).await;
    assert!(none.is_err());
    let wrong = Login::begin("issues", LoginRequest::default(), logins.path()).await;
    assert_snapshot!(wrong.err().unwrap(), @"its URL is not valid: give one that begins with http:// or https://");
    assert!(!is_logged_in(&url, logins.path()));
}

#[tokio::test]
async fn an_answer_to_another_login_is_passed_over() {
    let (url, server) = serve().await;
    let logins = tempfile::tempdir().unwrap();
    let login = Login::begin(&url, LoginRequest::default(), logins.path()).await.unwrap();
    let address = login.address().to_owned();
    let answers = async {
        let mut pages = Vec::new();
        for answer in ["code=x&state=other", "error=access_denied&state=other", "code=the-code"] {
            pages.push(agree(&address, &server, answer).await);
        }
        pages
    };
    let (pages, ended) = tokio::join!(answers, login.finish(LIMIT));
    ended.unwrap();
    let other = "This answer belongs to another login.";
    assert_eq!(pages, [other, other, "You are logged in. You can close this page."]);

    let login = Login::begin(&url, LoginRequest::default(), logins.path()).await.unwrap();
    let address = login.address().to_owned();
    let wrong = agree(&address, &server, "code=x&state=other");
    let (_, late) = tokio::join!(wrong, login.finish(Duration::from_secs(1)));
    assert_snapshot!(late.unwrap_err(), @"no login within 1 s: what came back was the answer to another login (its `state` is missing or differs)");
}

#[tokio::test]
async fn what_a_server_lacks_for_a_login_is_said() {
    let (url, server) = serve().await;
    let logins = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for flaw in [Flaw::NoDocuments, Flaw::NoRegistration, Flaw::PlainPkce] {
        server.lock().unwrap().flaw = flaw;
        let begun = Login::begin(&url, LoginRequest::default(), logins.path()).await;
        said.push(begun.err().unwrap().to_string());
    }
    assert_snapshot!(said.join("\n"), @r"
    the server offers no login by OAuth: set its Authorization header
    the authorization server registers no new client: Dynamic client registration not supported
    Authorization server does not support the required PKCE code challenge method (S256)
    ");
}
