//! What every request passes before it is handled: the names of the host, other sites, tokens, the size of
//! the body; and the headers of every response.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::auth::{Caller, Role, caller, permitted};
use crate::monitoring::{HEALTH, METRICS};
use crate::problem::Problem;

/// The longest body of a request, in bytes.
pub(crate) const MAX_BODY: usize = 1 << 20;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Scripts, styles and images of this server alone, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Refuses what a page of another site could have made a browser send, and requests without a token.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = match checked(&app, request).await {
        Ok(request) => app.bounds.handle(request, next).await,
        Err(problem) => problem.into_response(),
    };
    if is_api && is_plain_refusal(&response) {
        // Of the router itself: a path that is not UTF-8, for one.
        let detail = "the address cannot be used";
        let fix = "GET /api/v1/openapi.json describes the API";
        response = Problem::new(response.status(), "address_invalid", detail, fix).into_response();
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let default = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(default);
    response
}

fn is_plain_refusal(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    response.status().is_client_error()
        && kind.is_none_or(|kind| kind != "application/problem+json")
}

async fn checked(app: &App, request: Request) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    // A liveness probe may use any host name, and the response reveals nothing.
    if parts.uri.path() != HEALTH {
        let host = host(&parts.headers, &parts.uri, &app.actions.config.allowed_hosts)?;
        same_site(&parts.headers, &parts.method, &parts.uri, &host)?;
    }
    let caller = caller(&parts.headers, &app.cookie_name, &app.tokens);
    if let Some(role) = needed_role(&parts.method, parts.uri.path()) {
        let caller = authorized(caller, role)?;
        if caller.by_cookie && !is_safe(&parts.method) && !names_own_origin(&parts.headers) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "cross_site",
                "a change with a cookie names neither its origin nor its site",
                "send Origin or Sec-Fetch-Site as browsers do, or use Authorization: Bearer",
            ));
        }
    }
    parts.extensions.insert(caller);
    let collected = axum::body::to_bytes(body, MAX_BODY);
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, collected).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("the body is longer than {MAX_BODY} bytes, or ended early"),
                "send less",
            ));
        }
        Err(_) => {
            return Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()),
                "send the request again",
            ));
        }
    };
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// The role that a request needs; `None` where no token is needed.
fn needed_role(method: &Method, path: &str) -> Option<Role> {
    if path == METRICS {
        return Some(Role::Read);
    }
    let Some(path) = path.strip_prefix("/api/v1/") else {
        // Pages check for themselves whether there is a login, and ask for one.
        return None;
    };
    if path == "session" {
        return None;
    }
    if is_safe(method) {
        return Some(Role::Read);
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    Some(if last == "answer" { Role::Answer } else { Role::Admin })
}

pub(crate) fn authorized(caller: Option<Caller>, role: Role) -> Result<Caller, Problem> {
    let Some(caller) = caller else {
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "token_invalid",
            "the request has no valid token",
            "open the address that `fabro serve` printed, or send its token as Authorization: Bearer",
        ));
    };
    permitted(caller.role, role)?;
    Ok(caller)
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The authority that the request names, if it may. A page whose name was pointed to this machine (DNS
/// rebinding) still sends its own name.
fn host(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<String, Problem> {
    let refused = |detail: String| {
        Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "host_not_allowed",
            detail,
            "use 127.0.0.1 or localhost; another name is allowed when the server is started",
        )
    };
    let mut values = headers.get_all(header::HOST).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(refused("the request names no host, or several".to_owned()));
    };
    let authority = value.to_str().unwrap_or_default().to_ascii_lowercase();
    if uri.authority().is_some_and(|own| !own.as_str().eq_ignore_ascii_case(&authority)) {
        return Err(refused("the request names two hosts".to_owned()));
    }
    let name = host_name(&authority).unwrap_or_default();
    if is_loopback(name) || allowed.iter().any(|it| it.eq_ignore_ascii_case(name)) {
        return Ok(authority);
    }
    Err(refused(format!("the host `{}` is not one of this server", name.escape_debug())))
}

/// An authority without its port; `None` if it has user info or an invalid port.
fn host_name(authority: &str) -> Option<&str> {
    let end = authority.find(']').map_or(0, |end| end + 1);
    let (_, rest) = authority.split_at(end);
    let (name, port) = rest.split_once(':').map_or((rest, None), |(name, port)| (name, Some(port)));
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_plain = !authority.contains('@') && (end == 0 || name.is_empty());
    (is_plain && port.is_none_or(is_port)).then(|| &authority[..end + name.len()])
}

fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// Refuses requests that a page of another origin made. Following a link to a page is allowed: the cookie is
/// not sent with it.
fn same_site(headers: &HeaderMap, method: &Method, uri: &Uri, host: &str) -> Result<(), Problem> {
    let refused = |detail: String| {
        Problem::new(
            StatusCode::FORBIDDEN,
            "cross_site",
            detail,
            "send it from a page of this server, or from a program with Authorization: Bearer",
        )
    };
    if headers.get_all(header::ORIGIN).iter().nth(1).is_some() {
        return Err(refused("the request has several Origin headers".to_owned()));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if own != Some(host) {
            let shown = origin.escape_debug();
            return Err(refused(format!("the request comes from the origin `{shown}`")));
        }
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        Some(site) => {
            let is_link = *method == Method::GET
                && text("sec-fetch-mode") == Some("navigate")
                && text("sec-fetch-dest") == Some("document")
                && !uri.path().starts_with("/api/");
            let refused = refused(format!("the request is {}", site.escape_debug()));
            if is_link { Ok(()) } else { Err(refused) }
        }
    }
}

/// Whether a browser says that its own page sends the request. [`same_site`] has checked what it says.
fn names_own_origin(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_server_are_hosts() {
        let allowed = ["build.example".to_owned()];
        let check = |name: &'static str, expect: bool| {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(name))]);
            assert_eq!(host(&headers, &Uri::from_static("/"), &allowed).is_ok(), expect, "{name}");
        };
        for name in ["127.0.0.1:4710", "localhost", "LOCALHOST:1", "[::1]:4710", "build.example:8"]
        {
            check(name, true);
        }
        for name in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:4710", "", ":1"]
                .into_iter()
                .chain(["user@localhost", "evil.example:1@localhost", "user:1@127.0.0.1:4710"])
                .chain(["localhost:65536", "localhost:+1", "localhost:", "[::1]:99999"])
                .chain(["[::1]evil.example:1", "localhost:1:2"])
        {
            check(name, false);
        }
        assert!(host(&HeaderMap::new(), &Uri::from_static("/"), &allowed).is_err());
    }

    #[test]
    fn other_sites_may_only_link_to_pages() {
        let check = |method: Method, path: &str, headers: &[(&'static str, &str)], expect: bool| {
            let pairs = headers.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            });
            let all: HeaderMap = pairs.collect();
            let uri: Uri = path.parse().unwrap();
            let result = same_site(&all, &method, &uri, "localhost:1");
            assert_eq!(result.is_ok(), expect, "{method} {path} {headers:?}");
        };
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        check(Method::GET, "/runs/1", &link, true);
        check(Method::GET, "/api/v1/runs", &link, false);
        check(Method::POST, "/runs/1", &link, false);
        check(Method::GET, "/", &[("sec-fetch-site", "same-site")], false);
        check(Method::POST, "/api/v1/runs", &[("sec-fetch-site", "same-origin")], true);
        check(Method::POST, "/api/v1/runs", &[("origin", "http://localhost:1")], true);
        for origin in ["null", "http://localhost:2", "http://evil.example", "file://"] {
            check(Method::POST, "/api/v1/runs", &[("origin", origin)], false);
        }
    }

    #[test]
    fn changes_need_more_than_reading() {
        let check = |method: Method, path: &str, expect: Option<Role>| {
            assert_eq!(needed_role(&method, path), expect, "{method} {path}");
        };
        check(Method::GET, "/api/v1/runs", Some(Role::Read));
        check(Method::POST, "/api/v1/runs", Some(Role::Admin));
        check(Method::POST, "/api/v1/runs/x/answer", Some(Role::Answer));
        check(Method::POST, "/api/v1/runs/x/steer", Some(Role::Admin));
        check(Method::POST, "/api/v1/runs/x/cancel", Some(Role::Admin));
        check(Method::DELETE, "/api/v1/runs/x", Some(Role::Admin));
        check(Method::POST, "/api/v1/session", None);
        check(Method::GET, "/metrics", Some(Role::Read));
        check(Method::GET, "/healthz", None);
        check(Method::GET, "/", None);
    }
}
