//! The bodies of errors, and which kind of error they mean.

use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::ErrorKind;

/// How many characters of a provider's message are kept.
const LONGEST_MESSAGE: usize = 500;

/// What is known of the errors of providers: `errors.json`.
#[derive(Deserialize)]
struct KnownErrors {
    /// Error codes by kind. Where an error has codes of several kinds, the first one counts, so the most
    /// specific kinds come first.
    codes: Vec<(ErrorKind, Vec<String>)>,
    /// Errors without a code of their own: their kind, the providers, and how their message begins, where
    /// `#` stands for a number; after `…`, what it has anywhere. This is the only place that looks at
    /// messages, and only after codes and where a request was refused.
    messages: Vec<(ErrorKind, String, Vec<String>)>,
}

#[expect(clippy::expect_used, reason = "the file is part of the program, and tests read it")]
static KNOWN: LazyLock<KnownErrors> = LazyLock::new(|| {
    serde_json::from_str(include_str!("errors.json")).expect("errors.json is valid")
});

/// An error as its provider reports it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ErrorBody {
    /// Its code, type, status and reasons, as far as they are words.
    codes: Vec<String>,
    /// The HTTP status, where the body has it.
    status: Option<u16>,
    message: Option<String>,
    /// The beginning of the message that a proxy has wrapped.
    inner: Option<String>,
    /// How long to wait before the next request, where the body says it.
    pub(super) wait: Option<Duration>,
}

impl ErrorBody {
    /// Reads the body of an error.
    pub(super) fn from_text(text: &str) -> Self {
        match serde_json::from_str::<Value>(text) {
            Ok(value) => Self::from_value(&value),
            // A web page says no more than the status does.
            Err(_) if text.trim_start().starts_with('<') => Self::default(),
            Err(_) => {
                let text = text.trim();
                let message = (!text.is_empty()).then(|| text.to_owned());
                Self { message, ..Self::default() }
            }
        }
    }

    /// Reads an error: the object itself, or what holds it under `error`.
    pub(super) fn from_value(value: &Value) -> Self {
        // Gemini may send a list with the error in it.
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let error = match &value["error"] {
            error @ (Value::Object(_) | Value::String(_)) => error,
            _ => value,
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut body = Self {
            message: text(error)
                .or_else(|| text(&error["message"]))
                .or_else(|| text(&error["detail"])),
            ..Self::default()
        };
        for key in ["code", "type", "status", "reason"] {
            body.codes.extend(text(&error[key]));
            let number = error[key].as_u64().and_then(|number| u16::try_from(number).ok());
            body.status = body.status.or(number.filter(|number| (300..600).contains(number)));
        }
        // Anthropic's details are an object, Google's a list.
        body.codes.extend(text(&error["details"]["error_code"]));
        for detail in error["details"].as_array().into_iter().flatten() {
            body.codes.extend(text(&detail["reason"]));
            for violation in detail["violations"].as_array().into_iter().flatten() {
                let quota = violation["quotaId"].as_str().unwrap_or_default();
                body.codes.extend(quota.contains("PerDay").then(|| "PerDay".to_owned()));
            }
            let delay = detail["retryDelay"].as_str().and_then(|delay| delay.strip_suffix('s'));
            body.wait = body.wait.or(delay.and_then(seconds));
        }
        body.unwrapped()
    }

    /// A proxy's error (`litellm.BadRequestError: OpenAIException - …`) as the provider's behind it.
    fn unwrapped(mut self) -> Self {
        let Some(message) = self.message.as_deref().filter(|it| it.starts_with("litellm.")) else {
            return self;
        };
        let inner = message.split_once("Exception - ").or_else(|| message.split_once(": "));
        let inner = inner.map_or("", |(_, inner)| inner).trim();
        // The proxy may show bytes as Python does.
        let inner = inner.trim_start_matches("b'").trim_end_matches('\'');
        let mut values = serde_json::Deserializer::from_str(inner).into_iter::<Value>();
        let body = match values.next() {
            Some(Ok(value @ Value::Object(_))) => Self::from_value(&value),
            _ => Self { message: Some(inner.to_owned()), ..Self::default() },
        };
        // The proxy's own codes follow those of the provider.
        self.inner = body.message.map(|message| beginning(&message));
        self.codes.splice(0..0, body.codes);
        self.wait = self.wait.or(body.wait);
        self
    }

    /// A limit of spending that the provider lifts by itself: it says when.
    pub(super) fn lifts_by_itself(&mut self) {
        self.codes.retain(|code| code != "enforced_spend_limit_reached");
    }

    /// The kind of error, together with the status that came with it. Errors inside a stream have none.
    pub(super) fn kind(&self, status: Option<u16>) -> ErrorKind {
        let status = status.or(self.status);
        if status == Some(402) {
            return ErrorKind::Quota;
        }
        // Ollama's `api_error` comes with every status: a request that is refused as wrong is no trouble of the server.
        let is_wrong = matches!(status, Some(400 | 401 | 403 | 404 | 405 | 410 | 413 | 415 | 422));
        let fits = |kind: ErrorKind| match kind {
            // Too many tokens a minute are no overflow.
            ErrorKind::ContextOverflow => status != Some(429),
            ErrorKind::Overloaded => !is_wrong,
            _ => true,
        };
        let has_code = |codes: &[String]| self.codes.iter().any(|code| codes.contains(code));
        let known = KNOWN.codes.iter().find(|(kind, codes)| fits(*kind) && has_code(codes));
        if let Some((kind, _)) = known {
            return *kind;
        }
        let start = self.message.as_deref().map(beginning).unwrap_or_default();
        let texts = [Some(&start), self.inner.as_ref()];
        let says = |pattern: &String| {
            texts.into_iter().flatten().any(|text| match pattern.strip_prefix('…') {
                Some(part) => text.contains(part),
                None => text.starts_with(pattern.as_str()),
            })
        };
        let refused = |kind: ErrorKind| match status {
            None | Some(400 | 413 | 422) => true,
            Some(403 | 429) => kind == ErrorKind::Quota,
            Some(_) => false,
        };
        let mut messages = KNOWN.messages.iter();
        if let Some((kind, ..)) =
            messages.find(|(kind, _, patterns)| refused(*kind) && patterns.iter().any(says))
        {
            return *kind;
        }
        match status {
            // An unknown error inside a stream: the answer broke off.
            None => ErrorKind::BrokenStream,
            Some(401 | 403 | 407) => ErrorKind::Auth,
            Some(408 | 504) => ErrorKind::Timeout,
            Some(404 | 410) => ErrorKind::UnknownModel,
            Some(413) => ErrorKind::ContextOverflow,
            Some(429) => ErrorKind::RateLimit,
            Some(409 | 425 | 499 | 500..) => ErrorKind::Overloaded,
            Some(_) => ErrorKind::InvalidRequest,
        }
    }

    /// The model takes no tools, and the request has some.
    pub(super) fn refuses_tools(&self) -> bool {
        let texts = [self.message.as_ref(), self.inner.as_ref()];
        texts.into_iter().flatten().any(|text| {
            // Ollama, OpenRouter.
            text.contains("does not support tools") || text.contains("support tool use")
        })
    }

    /// Status, code and message, as far as there are any.
    pub(super) fn summary(&self, status: Option<u16>) -> String {
        let status = status.map(|status| status.to_string());
        let words = status.as_deref().into_iter().chain(self.codes.first().map(String::as_str));
        let mut summary = words.collect::<Vec<_>>().join(" ");
        if let Some(message) = &self.message {
            if !summary.is_empty() {
                summary.push_str(": ");
            }
            summary.extend(message.chars().take(LONGEST_MESSAGE));
            if message.chars().nth(LONGEST_MESSAGE).is_some() {
                summary.push('…');
            }
        }
        summary
    }

    /// With secrets redacted; done before the message is cut, so that no half of a secret is left.
    pub(super) fn redacted(mut self, redact: impl Fn(&str) -> String) -> Self {
        self.message = self.message.map(|message| redact(&message));
        for code in &mut self.codes {
            *code = redact(code).chars().take(80).collect();
        }
        self
    }
}

/// The beginning of a message, with `#` for each number.
fn beginning(message: &str) -> String {
    let mut shape = String::new();
    for character in message.trim_start().chars().take(LONGEST_MESSAGE) {
        match character {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            other => shape.push(other),
        }
    }
    shape
}

/// A number of seconds, which may have a fraction.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expect: &str) {
        let error = ErrorBody::from_text(body);
        let status = (status > 0).then_some(status);
        assert_eq!(format!("{:?}: {}", error.kind(status), error.summary(status)), expect);
    }

    #[test]
    fn codes_go_before_the_status() {
        check(
            429,
            r#"{"error": {"message": "Slow down", "type": "requests", "code": "rate_limit_exceeded"}}"#,
            "RateLimit: 429 rate_limit_exceeded: Slow down",
        );
        check(
            429,
            r#"{"error": {"message": "No money", "type": "insufficient_quota", "code": null}}"#,
            "Quota: 429 insufficient_quota: No money",
        );
        check(
            400,
            r#"{"error": {"message": "m", "type": "invalid_request_error", "code": "context_length_exceeded"}}"#,
            "ContextOverflow: 400 context_length_exceeded: m",
        );
        check(
            400,
            r#"{"error": {"code": 400, "message": "m", "type": "exceed_context_size_error", "n_ctx": 1}}"#,
            "ContextOverflow: 400 exceed_context_size_error: m",
        );
        check(
            529,
            r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#,
            "Overloaded: 529 overloaded_error: Overloaded",
        );
        check(
            400,
            r#"[{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}]"#,
            "Auth: 400 INVALID_ARGUMENT: API key not valid.",
        );
        check(
            429,
            r#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m"}}"#,
            "RateLimit: 429 RESOURCE_EXHAUSTED: m",
        );
        check(
            400,
            r#"{"error": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<f>"}}"#,
            "UnusableAnswer: 400 tool_use_failed: Failed to call a function.",
        );
        check(
            400,
            r#"{"error": {"code": "content_filter", "message": "m"}}"#,
            "ContentFilter: 400 content_filter: m",
        );
    }

    #[test]
    fn what_is_spent_is_not_asked_again() {
        for code in [
            "insufficient_quota",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
        ] {
            let body = format!(
                r#"{{"error": {{"message": "m", "type": "insufficient_quota", "param": null, "code": "{code}"}}}}"#
            );
            check(429, &body, &format!("Quota: 429 {code}: m"));
        }
        for (status, code) in [
            (429, "insufficient_balance_error"),
            (429, "exceeded_current_quota_error"),
            (429, "1113"),
        ] {
            let body = format!(r#"{{"error": {{"message": "m", "code": "{code}"}}}}"#);
            check(status, &body, &format!("Quota: {status} {code}: m"));
        }
        let limit = "You have reached your specified API usage limits. You will regain access on 2026-12-01";
        check(
            400,
            &format!(
                r#"{{"type": "error", "error": {{"type": "invalid_request_error", "message": "{limit}"}}}}"#
            ),
            &format!("Quota: 400 invalid_request_error: {limit}"),
        );
        check(
            402,
            r#"{"type": "error", "error": {"type": "billing_error", "message": "m"}}"#,
            "Quota: 402 billing_error: m",
        );
        let spent = r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "m",
            "details": {"error_code": "enforced_spend_limit_reached"}}}"#;
        check(429, spent, "Quota: 429 rate_limit_error: m");
        check(
            402,
            r#"{"error": {"code": 402, "status": "RESOURCE_EXHAUSTED", "message": "prepaid"}}"#,
            "Quota: 402 RESOURCE_EXHAUSTED: prepaid",
        );
        check(
            0,
            r#"{"error": {"code": 402, "status": "RESOURCE_EXHAUSTED", "message": "prepaid"}}"#,
            "Quota: RESOURCE_EXHAUSTED: prepaid",
        );
    }

    #[test]
    fn quotas_of_gemini_are_of_a_day_or_a_minute() {
        let body = |id: &str, reason: &str| {
            format!(
                r#"{{"error": {{"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [
                {{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{{"quotaId": "{id}"}}]}},
                {{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "{reason}"}},
                {{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}}]}}}}"#
            )
        };
        let check = |id: &str, reason: &str, kind: ErrorKind| {
            let error = ErrorBody::from_text(&body(id, reason));
            assert_eq!((error.kind(Some(429)), error.wait), (kind, seconds("34")), "{id} {reason}");
        };
        let day = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";
        let minute = "GenerateContentInputTokensPerModelPerMinute";
        check(day, "RATE_LIMIT_EXCEEDED", ErrorKind::Quota);
        check(minute, "RATE_LIMIT_EXCEEDED", ErrorKind::RateLimit);
        check(minute, "QUOTA_EXHAUSTED", ErrorKind::Quota);
        check("x", "MODEL_CAPACITY_EXHAUSTED", ErrorKind::Overloaded);
        check("x", "", ErrorKind::RateLimit);
    }

    #[test]
    fn a_proxy_shows_the_error_behind_it() {
        let check = |status, message: &str, kind| {
            let message = Value::from(message);
            let body = format!(
                r#"{{"error": {{"message": {message}, "type": "None", "code": "{status}"}}}}"#
            );
            assert_eq!(ErrorBody::from_text(&body).kind(Some(status)), kind, "{message}");
        };
        let max = "This model's maximum context length is 4096 tokens. However, you requested 5000";
        let overflow = ErrorKind::ContextOverflow;
        check(400, &format!("litellm.BadRequestError: OpenAIException - {max}"), overflow);
        check(400, "litellm.ContextWindowExceededError: litellm.BadRequestError: x", overflow);
        check(
            400,
            r#"litellm.BadRequestError: AnthropicException - {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 3 tokens > 2 maximum"}}"#,
            overflow,
        );
        check(
            400,
            r#"litellm.BadRequestError: VertexAIException - b'{"error":{"code":400,"message":"The input token count (9) exceeds the maximum","status":"INVALID_ARGUMENT"}}'"#,
            overflow,
        );
        check(
            429,
            "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your plan",
            ErrorKind::Quota,
        );
        check(
            429,
            "litellm.RateLimitError: OpenAIException - Rate limit reached for requests",
            ErrorKind::RateLimit,
        );
        check(400, "litellm.BadRequestError: OpenAIException - no", ErrorKind::InvalidRequest);
        check(400, "litellm.", ErrorKind::InvalidRequest);
    }

    #[test]
    fn too_many_tokens_a_minute_are_no_overflow() {
        check(
            429,
            r#"{"error": {"message": "Request too large for model", "code": "context_length_exceeded"}}"#,
            "RateLimit: 429 context_length_exceeded: Request too large for model",
        );
        check(
            429,
            "prompt is too long: 3 tokens > 2 maximum",
            "RateLimit: 429: prompt is too long: 3 tokens > 2 maximum",
        );
    }

    #[test]
    fn only_the_beginning_of_a_refusal_counts() {
        let body = |message: &str| {
            format!(
                r#"{{"type": "error", "error": {{"type": "invalid_request_error", "message": "{message}"}}}}"#
            )
        };
        let check = |status, message: &str, kind| {
            assert_eq!(ErrorBody::from_text(&body(message)).kind(Some(status)), kind, "{message}");
        };
        check(400, "prompt is too long: 3 tokens > 2 maximum", ErrorKind::ContextOverflow);
        check(
            400,
            "input length and `max_tokens` exceed context limit: 1",
            ErrorKind::ContextOverflow,
        );
        check(400, "Prompt contains 40000 tokens and 0 draft tokens", ErrorKind::ContextOverflow);
        check(400, "The decoder prompt (length 5000) is longer", ErrorKind::ContextOverflow);
        for message in [
            "Input is too long for requested model.",
            "prompt too long; exceeded max context length by 904 tokens",
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
            "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "Please reduce the length of the messages or completion.",
            "too many tokens: size limit exceeded by 904 tokens.",
            "The engine prompt length 5000 exceeds the max_model_len 4096. Please reduce prompt.",
            "Request is too large for model with 32768 maximum context length",
            "The number of tokens to keep from the initial prompt is greater than the context length",
            "This model's maximum prompt length is 4 but the request contains 5 tokens.",
            "Your request exceeded model token limit: 4096",
            "Invalid request: Your request exceeded model token limit: 4096",
            "invalid params, context window exceeds limit (2013)",
            "Range of input length should be [1, 4096]",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 4096]",
        ] {
            check(400, message, ErrorKind::ContextOverflow);
        }
        check(400, "The input (5000 apples) is red", ErrorKind::InvalidRequest);
        check(400, "Your credit balance is too low to access the API", ErrorKind::Quota);
        check(400, "Output blocked by content filtering policy", ErrorKind::ContentFilter);
        check(400, "the tool says that the prompt is too long", ErrorKind::InvalidRequest);
        check(500, "prompt is too long", ErrorKind::Overloaded);
    }

    #[test]
    fn the_status_decides_the_rest() {
        check(401, "", "Auth: 401");
        check(402, "{}", "Quota: 402");
        check(403, r#"{"error": "forbidden"}"#, "Auth: 403: forbidden");
        check(404, r#"{"detail": "Not Found"}"#, "UnknownModel: 404: Not Found");
        check(408, "", "Timeout: 408");
        check(413, "too large", "ContextOverflow: 413: too large");
        check(422, "[]", "InvalidRequest: 422");
        check(429, "null", "RateLimit: 429");
        check(502, "<html>secret</html>", "Overloaded: 502");
        check(504, "", "Timeout: 504");
        check(499, "", "Overloaded: 499");
        check(529, "", "Overloaded: 529");
        check(301, "", "InvalidRequest: 301");
        check(500, &"x".repeat(501), &format!("Overloaded: 500: {}…", "x".repeat(500)));
    }

    #[test]
    fn the_status_tells_whose_fault_it_is() {
        let body = |message: &str| {
            format!(r#"{{"error": {{"message": "{message}", "type": "api_error"}}}}"#)
        };
        let missing = body(r#"model \"default\" not found, try pulling it first"#);
        check(
            404,
            &missing,
            r#"UnknownModel: 404 api_error: model "default" not found, try pulling it first"#,
        );
        check(400, &body("no"), "InvalidRequest: 400 api_error: no");
        check(422, &body("no"), "InvalidRequest: 422 api_error: no");
        check(
            400,
            &body("prompt is too long: 3"),
            "ContextOverflow: 400 api_error: prompt is too long: 3",
        );
        check(429, &body("slower"), "Overloaded: 429 api_error: slower");
        check(500, &body("no"), "Overloaded: 500 api_error: no");
        check(0, &body("no"), "Overloaded: api_error: no");
        let tools = ErrorBody::from_text(&body("gemma:2b does not support tools"));
        assert!(tools.refuses_tools());
        assert!(!ErrorBody::from_text(&missing).refuses_tools());
    }

    #[test]
    fn events_have_no_status() {
        check(0, r#"{"message": "m", "type": "server_error"}"#, "Overloaded: server_error: m");
        check(0, r#"{"code": 502, "message": "m"}"#, "Overloaded: m");
        check(0, r#"{"code": 7, "message": "m"}"#, "BrokenStream: m");
        check(0, r#""boom""#, "BrokenStream: boom");
        check(
            0,
            r#"{"code": "rate_limit_exceeded", "message": "m"}"#,
            "RateLimit: rate_limit_exceeded: m",
        );
        check(
            0,
            r#"{"code": "insufficient_quota", "message": "m"}"#,
            "Quota: insufficient_quota: m",
        );
        check(
            0,
            r#"{"code": "invalid_prompt", "message": "m"}"#,
            "InvalidRequest: invalid_prompt: m",
        );
        check(
            0,
            r#"{"type": "error", "error": {"type": "overloaded_error", "message": "m"}}"#,
            "Overloaded: overloaded_error: m",
        );
    }

    #[test]
    fn the_body_may_say_how_long_to_wait() {
        let body = r#"{"error": {"details": [{"@type": "x"}, {"retryDelay": "34.5s"}]}}"#;
        assert_eq!(ErrorBody::from_text(body).wait, Some(Duration::from_millis(34_500)));
    }
}
