//! Search engines that refuse what the real ones refuse, in their words.

use serde_json::{Value, json};

use crate::{Request, Response};

/// A search engine, for [`search_engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SearchEngine {
    /// Brave Search.
    Brave,
    /// Tavily.
    Tavily,
    /// `SearXNG` with the format `json` enabled.
    Searxng,
}

/// Finds the same two pages for every query that the engine accepts with this key: for
/// [`Server::answering`](crate::Server::answering). The second page has no excerpt.
pub fn search_engine(
    engine: SearchEngine,
    key: &str,
) -> impl Fn(&Request) -> Response + Send + Sync + 'static {
    let key = key.to_owned();
    move |request| {
        let (status, body) = match engine {
            SearchEngine::Brave => brave(request, &key),
            SearchEngine::Tavily => tavily(request, &key),
            SearchEngine::Searxng => searxng(request),
        };
        Response::bytes(status, "application/json", body.to_string())
    }
}

fn brave(request: &Request, key: &str) -> (u16, Value) {
    let refused = |status: u16, code: &str, detail: &str| {
        let error = json!({"id": "1", "status": status, "code": code, "detail": detail});
        (status, json!({"type": "ErrorResponse", "error": error, "time": 1}))
    };
    if request.method != "GET" || !request.path.starts_with("/res/v1/web/search?") {
        return refused(404, "NOT_FOUND", "Not Found");
    }
    if request.header("x-subscription-token") != Some(key) {
        let detail = "The provided subscription token is invalid.";
        return refused(422, "SUBSCRIPTION_TOKEN_INVALID", detail);
    }
    let query = query_of(request, "q");
    let is_valid = (1..=400).contains(&query.chars().count())
        && query.split_whitespace().count() <= 50
        && (1..=20).contains(&query_of(request, "count").parse().unwrap_or(20));
    if !is_valid {
        return refused(422, "VALIDATION", "Unable to validate request parameter(s)");
    }
    let results = json!([
        {"title": "The <strong>first</strong> page", "url": "https://one.example/", "description": "An excerpt &amp; more"},
        {"title": "The second", "url": "https://two.example/", "description": ""}
    ]);
    (200, json!({"type": "search", "query": {"original": query}, "web": {"results": results}}))
}

fn tavily(request: &Request, key: &str) -> (u16, Value) {
    let refused = |status: u16, error: &str| (status, json!({"detail": {"error": error}}));
    if request.method != "POST" || request.path != "/search" {
        return (404, json!({"detail": "Not Found"}));
    }
    if request.header("authorization") != Some(&format!("Bearer {key}")) {
        return refused(401, "Unauthorized: missing or invalid API key.");
    }
    let body = request.json();
    let query = body["query"].as_str().unwrap_or_default();
    if query.is_empty() {
        return refused(400, "Query is missing.");
    }
    if query.chars().count() > 400 {
        return refused(400, "Query is too long. Max query length is 400 characters.");
    }
    if body["max_results"].as_u64().is_some_and(|count| count > 20) {
        return refused(400, "Max results must be between 0 and 20.");
    }
    let results = json!([
        {"title": "The first page", "url": "https://one.example/", "content": "An excerpt", "score": 0.9, "raw_content": null},
        {"title": "The second", "url": "https://two.example/", "content": "", "score": 0.1, "raw_content": null}
    ]);
    (200, json!({"query": query, "answer": null, "results": results, "response_time": 0.1}))
}

fn searxng(request: &Request) -> (u16, Value) {
    if !request.path.starts_with("/search?") {
        return (404, json!({"error": "Not Found"}));
    }
    if query_of(request, "q").is_empty() {
        return (400, json!({"error": "No query"}));
    }
    if query_of(request, "format") != "json" {
        return (403, json!({"error": "Forbidden"}));
    }
    let results = json!([
        {"title": "The first page", "url": "https://one.example/", "content": "An excerpt", "engine": "e"},
        {"title": "The second", "url": "https://two.example/", "content": null, "engine": "e"}
    ]);
    (200, json!({"query": query_of(request, "q"), "number_of_results": 0, "results": results}))
}

/// A parameter of the query of a path, decoded.
fn query_of(request: &Request, name: &str) -> String {
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next();
    value.unwrap_or_default()
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let hex = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(hex.unwrap_or(b'%'));
        bytes.extend_from_slice(&part.as_bytes()[if hex.is_some() { 2 } else { 0 }..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
