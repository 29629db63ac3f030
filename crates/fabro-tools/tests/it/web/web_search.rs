use fabro_config::{SearchProvider, WebSearchSettings};
use fabro_fakes::{Response, SearchEngine, Server, search_engine};
use fabro_redact::Redactor;
use fabro_tools::web::WebSearch;
use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{call, shown};

const KEY: &str = "search-key-8472";

fn tool(server: &Server, provider: SearchProvider, key: Option<&str>) -> WebSearch {
    let path = match provider {
        SearchProvider::Brave => "/res/v1/web/search",
        SearchProvider::Tavily => "/search",
        SearchProvider::Searxng => "/",
    };
    let url = Some(server.url() + path);
    let settings = WebSearchSettings { provider, url, ..WebSearchSettings::default() };
    WebSearch::new(&settings, key, Redactor::new([("K", "known-to-redactor")])).unwrap()
}

async fn found(
    engine: SearchEngine,
    provider: SearchProvider,
    key: &str,
    arguments: Value,
) -> String {
    let server = Server::answering(search_engine(engine, KEY)).await.unwrap();
    let output = call(&tool(&server, provider, Some(key)), arguments).await;
    shown(&output, server.address().port())
}

#[tokio::test]
async fn every_engine_gives_a_list() {
    let query = || json!({"query": "  50% of \"a\" & b "});
    let brave = found(SearchEngine::Brave, SearchProvider::Brave, KEY, query()).await;
    assert_snapshot!(brave, @r"
    1. The first page
       https://one.example/
       An excerpt & more
    2. The second
       https://two.example/
    ");
    let tavily = found(SearchEngine::Tavily, SearchProvider::Tavily, KEY, query()).await;
    assert_snapshot!(tavily, @r"
    1. The first page
       https://one.example/
       An excerpt
    2. The second
       https://two.example/
    ");
    let searxng = found(SearchEngine::Searxng, SearchProvider::Searxng, KEY, query()).await;
    assert_eq!(searxng, tavily);
    let one = json!({"query": "a", "max_results": 1});
    let one = found(SearchEngine::Searxng, SearchProvider::Searxng, KEY, one).await;
    assert_eq!(one.lines().count(), 3, "{one}");
}

#[tokio::test]
async fn a_refused_key_names_its_variable() {
    let query = || json!({"query": "a"});
    let brave = found(SearchEngine::Brave, SearchProvider::Brave, "wrong-key-1", query()).await;
    assert_snapshot!(brave, @r#"
    error: http://127.0.0.1:PORT answered 422: check the key in the environment variable BRAVE_API_KEY

    {"type":"ErrorResponse","error":{"id":"1","status":422,"code":"SUBSCRIPTION_TOKEN_INVALID","detail":"The provided subscription token is invalid."},"time":1}
    "#);
    let tavily = found(SearchEngine::Tavily, SearchProvider::Tavily, "wrong-key-1", query()).await;
    assert_snapshot!(tavily, @r#"
    error: http://127.0.0.1:PORT answered 401: check the key in the environment variable TAVILY_API_KEY

    {"detail":{"error":"Unauthorized: missing or invalid API key."}}
    "#);
}

#[tokio::test]
async fn queries_are_bounded_before_they_are_sent() {
    let long = "x".repeat(401);
    let words = "a ".repeat(51);
    for query in ["", " ", &long, &words] {
        let brave = json!({"query": query});
        let text = found(SearchEngine::Brave, SearchProvider::Brave, KEY, brave).await;
        assert_eq!(
            text,
            "error: a query has 1 to 400 characters and at most 50 words: write another one"
        );
    }
    let full = format!("{}{}", "ä ".repeat(49), "x".repeat(302));
    let full = json!({"query": full, "max_results": 20});
    for (engine, provider) in [
        (SearchEngine::Brave, SearchProvider::Brave),
        (SearchEngine::Tavily, SearchProvider::Tavily),
    ] {
        let text = found(engine, provider, KEY, full.clone()).await;
        assert!(text.starts_with("1. "), "{text}");
    }
}

#[tokio::test]
async fn other_answers_are_explained() {
    let answer = async |provider, status, media: &'static str, body: String| {
        let server = Server::answering(move |_| Response::bytes(status, media, body.clone()));
        let server = server.await.unwrap();
        let output = call(&tool(&server, provider, Some(KEY)), json!({"query": "a"})).await;
        shown(&output, server.address().port())
    };
    let searxng = SearchProvider::Searxng;
    let text = |text: &str| text.to_owned();
    assert_snapshot!(answer(searxng, 200, "application/json", text(r#"{"results": []}"#)).await, @r#"no results for "a": use other or fewer words"#);
    assert_snapshot!(answer(searxng, 200, "text/html", text("<html>hello</html>")).await, @r"
    error: http://127.0.0.1:PORT answered something that is not a list of results: check url and provider of [run.agent.web_search] in the settings

    <html>hello</html>
    ");
    assert_snapshot!(answer(searxng, 403, "text/html", text("Forbidden")).await, @r"
    error: http://127.0.0.1:PORT answered 403: enable the format `json` in the settings of the server (search.formats)

    Forbidden
    ");
    assert_snapshot!(answer(searxng, 429, "text/plain", text("slow down")).await, @r"
    error: http://127.0.0.1:PORT answered 429: try again later

    slow down
    ");
    assert_snapshot!(answer(searxng, 404, "text/plain", text("")).await, @"error: http://127.0.0.1:PORT answered 404: check url of [run.agent.web_search] in the settings");
    assert_snapshot!(answer(SearchProvider::Tavily, 432, "application/json", text("{}")).await, @r"
    error: http://127.0.0.1:PORT answered 432: the plan is used up: raise it, or wait for the next month

    {}
    ");
    let echo = format!(
        r#"{{"results": [{{"title": "{KEY}", "url": "https://a.example/known-to-redactor"}}]}}"#
    );
    assert_snapshot!(answer(searxng, 200, "application/json", echo).await, @r"
    1. [redacted:web_search]
       https://a.example/[redacted:K]
    ");
    let endless = format!(r#"{{"results": [{{"title": "{}"#, "x".repeat(2 << 20));
    let endless = answer(searxng, 200, "application/json", endless).await;
    assert!(endless.len() < 3_000, "{}", endless.len());
}
