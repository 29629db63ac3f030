use std::time::Duration;

use fabro_fakes::{Fault, Response, Server};
use fabro_llm::{
    Catalog, ErrorKind, Fallback, ModelError, Progress, Provider, ProviderKind, Providers,
    RequestPolicy, RetryPolicy, ask, complete,
};
use insta::assert_snapshot;

use crate::{BOTH, asked, client, provider, request};

async fn refused(kind: ProviderKind, response: Response) -> ModelError {
    asked(kind, response).await.unwrap_err()
}

#[tokio::test]
async fn every_fault_has_its_kind() {
    let faults = [
        Fault::RateLimit,
        Fault::Overloaded,
        Fault::ServerError,
        Fault::BadGateway,
        Fault::Auth,
        Fault::Forbidden,
        Fault::Quota,
        Fault::ContextOverflow,
        Fault::LlamaContextOverflow,
        Fault::ContentFilter,
        Fault::InvalidRequest,
        Fault::NotFound,
    ];
    let mut lines = Vec::new();
    for fault in faults {
        for kind in BOTH {
            let error = refused(kind, Response::error(fault)).await;
            assert_eq!((error.usage.turns, error.usage.failed_requests), (0, 1));
            lines.push(format!("{:?}: {error}", error.kind));
        }
    }
    assert_snapshot!(lines.join("\n"), @r"
    RateLimit: the model's rate limit is reached: try again later (test: 429 rate_limit_error: This request would exceed your organization's rate limit)
    RateLimit: the model's rate limit is reached: try again later (test: 429 rate_limit_exceeded: Rate limit reached for requests)
    Overloaded: the model's server is overloaded or has failed: try again later (test: 529 overloaded_error: Overloaded)
    Overloaded: the model's server is overloaded or has failed: try again later (test: 503 server_error: The engine is currently overloaded, please try again later)
    Overloaded: the model's server is overloaded or has failed: try again later (test: 500 api_error: Internal server error)
    Overloaded: the model's server is overloaded or has failed: try again later (test: 500 server_error: The server had an error while processing your request)
    Overloaded: the model's server is overloaded or has failed: try again later (test: 502)
    Overloaded: the model's server is overloaded or has failed: try again later (test: 502)
    Auth: the model's provider refused the key: check it (test: 401 authentication_error: invalid x-api-key)
    Auth: the model's provider refused the key: check it (test: 401 invalid_api_key: Incorrect API key provided: sk-12345678***wxyz)
    Auth: the model's provider refused the key: check it (test: 403 permission_error: Your API key may not use this resource)
    Auth: the model's provider refused the key: check it (test: 403 unsupported_country_region_territory: Country, region, or territory not supported)
    Quota: the quota at the model's provider is used up: raise it (test: 402 billing_error: Your credit balance is too low)
    Quota: the quota at the model's provider is used up: raise it (test: 429 insufficient_quota: You exceeded your current quota, please check your plan and billing details.)
    ContextOverflow: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: 400 invalid_request_error: prompt is too long: 215000 tokens > 200000 maximum)
    ContextOverflow: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: 400 context_length_exceeded: This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.)
    ContextOverflow: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: 400 exceed_context_size_error: the request exceeds the available context size. try increasing the context size or enable context shift)
    ContextOverflow: the conversation exceeds the model's context window: shorten it, or choose a larger model (test: 400 exceed_context_size_error: the request exceeds the available context size. try increasing the context size or enable context shift)
    ContentFilter: the model's provider refused to answer: change the prompt (test: 400 invalid_request_error: Output blocked by content filtering policy)
    ContentFilter: the model's provider refused to answer: change the prompt (test: 400 content_filter: The response was filtered due to the prompt triggering the content policy)
    InvalidRequest: the model's provider refused the request as invalid (test: 400 invalid_request_error: max_tokens: Field required)
    InvalidRequest: the model's provider refused the request as invalid (test: 400 invalid_value: Invalid value: 'x')
    UnknownModel: the model's provider does not know the model `some-model` or the address (test: 404 not_found_error: model: no-such-model)
    UnknownModel: the model's provider does not know the model `some-model` or the address (test: 404 model_not_found: The model does not exist)
    ");
}

#[tokio::test]
async fn the_wait_is_read() {
    for kind in BOTH {
        for fault in [Fault::RateLimit, Fault::Overloaded] {
            let error = refused(kind, Response::error(fault).retry_after("7")).await;
            assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        }
        let error = refused(kind, Response::error(Fault::RateLimit)).await;
        assert_eq!(error.retry_after, None);
    }
}

#[tokio::test]
async fn filtered_answers_are_errors() {
    for kind in BOTH {
        let error = refused(kind, Response::text("I must").stop("content_filter")).await;
        assert_eq!(error.kind, ErrorKind::ContentFilter);
    }
    let delta = r#"{"choices":[{"delta":{"refusal":"I cannot"},"finish_reason":"stop"}]}"#;
    let body = format!("data: {delta}\n\ndata: [DONE]\n\n");
    let error = refused(BOTH[1], Response::bytes(200, "text/event-stream", body)).await;
    assert_snapshot!(error, @"the model's provider refused to answer: change the prompt (test: I cannot)");
}

#[tokio::test]
async fn keys_and_headers_are_in_no_message() {
    let reported = r#"{"error": {"message": "wrong: sk-planted-secret, Bearer tok-planted-secret", "type": "sk-planted-secret"}}"#;
    for (status, kind) in [(401, BOTH[0]), (401, BOTH[1]), (400, BOTH[1]), (503, BOTH[0])] {
        let server = Server::start(vec![Response::bytes(status, "application/json", reported)])
            .await
            .unwrap();
        let mut provider = provider(kind, &server);
        provider.headers.insert("X-Token".to_owned(), "Bearer tok-planted-secret".to_owned());
        assert!(!format!("{provider:?}").contains("planted"));
        let model = Providers::new(vec![provider], Catalog::empty()).unwrap();
        assert!(!format!("{model:?}").contains("planted"));
        let error = complete(&model, request("Hi")).await.unwrap_err();
        assert!(!format!("{error:?}").contains("planted"), "{error:?}");
        assert!(error.message.contains("[hidden]"));
    }
}

#[tokio::test]
async fn overflows_are_known_by_their_words() {
    for reported in [
        r#"{"message": "Input is too long for requested model."}"#,
        r#"{"error": {"message": "prompt too long; exceeded max context length by 9 tokens", "type": "invalid_request_error"}}"#,
        r#"{"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", "error_type": "validation"}"#,
    ] {
        let error = refused(BOTH[1], Response::bytes(400, "application/json", reported)).await;
        assert_eq!(error.kind, ErrorKind::ContextOverflow, "{error}");
    }
}

#[tokio::test]
async fn long_messages_are_cut() {
    let error = refused(BOTH[0], Response::bytes(500, "text/plain", "é".repeat(100_000))).await;
    assert!(error.message.chars().count() < 700, "{error}");
}

#[tokio::test]
async fn only_the_beginning_of_an_error_is_read() {
    // What it would mean stands behind the first megabyte.
    let body =
        format!(r#"{{"x": "{}", "error": {{"code": "invalid_api_key"}}}}"#, "é".repeat(1 << 20));
    for kind in BOTH {
        let error = refused(kind, Response::bytes(500, "application/json", body.as_str())).await;
        assert_eq!(error.kind, ErrorKind::Overloaded);
        assert!(error.message.chars().count() < 700, "{error}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(vec![Response::text("x")]).await.unwrap();
    for kind in BOTH {
        let error = refused(kind, Response::redirect(&elsewhere.base_url())).await;
        assert_eq!(error.kind, ErrorKind::UnknownModel);
        let told = format!("redirects to {}: set base_url", elsewhere.base_url());
        assert!(error.message.contains(&told), "{error}");
    }
    assert_eq!(elsewhere.requests(), []);
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    for kind in BOTH {
        let page = Response::bytes(200, "Text/HTML; charset=utf-8", "<!doctype html><html></html>");
        let error = refused(kind, page).await;
        assert_eq!(error.kind, ErrorKind::UnknownModel);
        assert!(error.message.contains("answered with a web page: check base_url"), "{error}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_reported_with_its_address() {
    // A port that was free a moment ago.
    let port = {
        let server = Server::start(Vec::new()).await.unwrap();
        server.address().port()
    };
    let base_url = Some(format!("http://127.0.0.1:{port}/v1"));
    let provider = Provider { base_url, ..Provider::new("gone", ProviderKind::OpenAiCompatible) };
    let model = Providers::new(vec![provider], Catalog::empty()).unwrap();
    let error = complete(&model, request("Hi")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(
        error.message.contains(&format!("http://127.0.0.1:{port}/v1 cannot be reached")),
        "{error}"
    );
}

#[tokio::test]
async fn a_request_is_made_again_and_elsewhere() {
    let busy = Response::error(Fault::RateLimit).retry_after("0");
    let first = Server::start(vec![busy]).await.unwrap();
    let second = Server::start(vec![
        Response::error(Fault::Overloaded),
        Response::text("Hello").usage(10, 2, 0),
    ])
    .await
    .unwrap();
    let mut providers = vec![provider(BOTH[0], &first), provider(BOTH[1], &second)];
    "other".clone_into(&mut providers[1].name);
    let model = Providers::new(providers, Catalog::builtin()).unwrap();
    let retry = RetryPolicy { first: Duration::from_millis(1), ..RetryPolicy::default() };
    let fallbacks = vec![Fallback::new("other/their-model")];
    let asking = RequestPolicy { retry, fallbacks, seed: 1, ..RequestPolicy::default() };
    let mut reported = Vec::new();
    let reply = ask(&model, request("Hi"), &asking, |progress| match progress {
        Progress::Retrying { error, failed, .. } => {
            reported.push(format!("{failed} {:?}", error.kind));
        }
        Progress::Failover { to, .. } => reported.push(to.to_string()),
        _ => {}
    })
    .await
    .unwrap();
    assert_eq!(reported, ["1 RateLimit", "2 RateLimit", "other/their-model", "1 Overloaded"]);
    assert_eq!((reply.text().as_str(), reply.usage.requests()), ("Hello", 5));
    assert_eq!(first.requests().len(), 3);
    assert_eq!(second.requests()[1].json()["model"], "their-model");
}

#[tokio::test]
async fn a_provider_that_is_not_configured_is_an_error_before_a_request() {
    let server = Server::start(Vec::new()).await.unwrap();
    let model = client(BOTH[0], &server);
    let mut request = request("Hi");
    request.provider = Some("openai".to_owned());
    let error = complete(&model, request).await.unwrap_err();
    assert_eq!((error.kind, error.usage.turns), (ErrorKind::Auth, 0));
    assert_eq!(server.requests(), []);
}
