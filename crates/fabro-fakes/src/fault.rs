use serde_json::{Value, json};

use crate::wire::Protocol;

/// An error of a provider, in the form of that provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// 429: too many requests.
    RateLimit,
    /// 529 of Anthropic, 503 of `OpenAI`.
    Overloaded,
    /// 500.
    ServerError,
    /// 401: the key is wrong.
    Auth,
    /// 403: the key may not do this.
    Forbidden,
    /// No credit is left: 402 of Anthropic, 429 with a code of its own of `OpenAI`.
    Quota,
    /// 400: the conversation is longer than the window.
    ContextOverflow,
    /// 400 in the form of llama.cpp's server.
    LlamaContextOverflow,
    /// 400: the filter refuses the prompt.
    ContentFilter,
    /// 400: a field is wrong.
    InvalidRequest,
    /// 404: no such model.
    NotFound,
    /// 502 with a page of HTML, as proxies do.
    BadGateway,
}

impl Fault {
    pub(crate) fn status(self, protocol: Protocol) -> u16 {
        match (self, protocol) {
            (Self::Quota, Protocol::Anthropic) => 402,
            (Self::RateLimit | Self::Quota, _) => 429,
            (Self::Overloaded, Protocol::Anthropic) => 529,
            (Self::Overloaded, _) => 503,
            (Self::ServerError, _) => 500,
            (Self::BadGateway, _) => 502,
            (Self::Auth, _) => 401,
            (Self::Forbidden, _) => 403,
            (Self::NotFound, _) => 404,
            _ => 400,
        }
    }

    pub(crate) fn body(self, protocol: Protocol) -> String {
        if self == Self::BadGateway {
            return "<html><body><h1>502 Bad Gateway</h1></body></html>".to_owned();
        }
        match protocol {
            Protocol::Anthropic => self.anthropic().to_string(),
            Protocol::Gemini => self.gemini().to_string(),
            Protocol::OpenAi | Protocol::Responses | Protocol::Plain => {
                json!({"error": self.open_ai()}).to_string()
            }
        }
    }

    /// The whole object, for a body and for an event of a stream.
    pub(crate) fn anthropic(self) -> Value {
        let (kind, message) = match self {
            Self::RateLimit => {
                ("rate_limit_error", "This request would exceed your organization's rate limit")
            }
            Self::Overloaded => ("overloaded_error", "Overloaded"),
            Self::ServerError | Self::BadGateway => ("api_error", "Internal server error"),
            Self::Auth => ("authentication_error", "invalid x-api-key"),
            Self::Forbidden => ("permission_error", "Your API key may not use this resource"),
            Self::Quota => ("billing_error", "Your credit balance is too low"),
            Self::ContextOverflow => {
                ("invalid_request_error", "prompt is too long: 215000 tokens > 200000 maximum")
            }
            Self::LlamaContextOverflow => return json!({"error": self.open_ai()}),
            Self::ContentFilter => {
                ("invalid_request_error", "Output blocked by content filtering policy")
            }
            Self::InvalidRequest => ("invalid_request_error", "max_tokens: Field required"),
            Self::NotFound => ("not_found_error", "model: no-such-model"),
        };
        json!({"type": "error", "error": {"type": kind, "message": message}})
    }

    /// The whole object.
    pub(crate) fn gemini(self) -> Value {
        let (status, message) = match self {
            Self::RateLimit => ("RESOURCE_EXHAUSTED", "Resource has been exhausted"),
            Self::Quota => ("RESOURCE_EXHAUSTED", "You exceeded your current quota"),
            Self::Overloaded => ("UNAVAILABLE", "The model is overloaded. Please try again later."),
            Self::ServerError | Self::BadGateway => ("INTERNAL", "An internal error has occurred"),
            Self::Auth => ("UNAUTHENTICATED", "API key not valid. Please pass a valid API key."),
            Self::Forbidden => ("PERMISSION_DENIED", "The caller does not have permission"),
            Self::ContextOverflow | Self::LlamaContextOverflow => (
                "INVALID_ARGUMENT",
                "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
            ),
            Self::ContentFilter | Self::InvalidRequest => {
                ("INVALID_ARGUMENT", "Invalid value at 'contents'")
            }
            Self::NotFound => ("NOT_FOUND", "models/no-such-model is not found"),
        };
        let code = self.status(Protocol::Gemini);
        json!({"error": {"code": code, "message": message, "status": status}})
    }

    /// The value of `error`.
    pub(crate) fn open_ai(self) -> Value {
        let (kind, code, message) = match self {
            Self::RateLimit => {
                ("requests", Some("rate_limit_exceeded"), "Rate limit reached for requests")
            }
            Self::Overloaded => {
                ("server_error", None, "The engine is currently overloaded, please try again later")
            }
            Self::ServerError | Self::BadGateway => {
                ("server_error", None, "The server had an error while processing your request")
            }
            Self::Auth => (
                "invalid_request_error",
                Some("invalid_api_key"),
                "Incorrect API key provided: sk-12345678***wxyz",
            ),
            Self::Forbidden => (
                "invalid_request_error",
                Some("unsupported_country_region_territory"),
                "Country, region, or territory not supported",
            ),
            Self::Quota => (
                "insufficient_quota",
                Some("insufficient_quota"),
                "You exceeded your current quota, please check your plan and billing details.",
            ),
            Self::ContextOverflow => (
                "invalid_request_error",
                Some("context_length_exceeded"),
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
            ),
            Self::LlamaContextOverflow => {
                return json!({
                    "code": 400,
                    "message": "the request exceeds the available context size. try increasing the context size or enable context shift",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 8192,
                });
            }
            Self::ContentFilter => (
                "invalid_request_error",
                Some("content_filter"),
                "The response was filtered due to the prompt triggering the content policy",
            ),
            Self::InvalidRequest => {
                ("invalid_request_error", Some("invalid_value"), "Invalid value: 'x'")
            }
            Self::NotFound => {
                ("invalid_request_error", Some("model_not_found"), "The model does not exist")
            }
        };
        json!({"message": message, "type": kind, "param": null, "code": code})
    }
}
