//! Tools that the settings declare.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tool::{Call, Output, Tool};
use async_trait::async_trait;
use fabro_config::{HttpMethod, HttpTool};
use fabro_llm::ToolSpec;
use fabro_preamble::memory::ToolContext;
use fabro_redact::{Redactor, is_secret_name};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode, Url};
use serde_json::{Map, Value};

use crate::call::unless_canceled;
use crate::web::SetupError;
use crate::web::body;
use crate::web::client::{Lazy, Limits, REDIRECTS};
use crate::web::cut::head;
use crate::web::error::FetchError;
use crate::web::fetch::{EXCERPT, redirect};

/// A tool of the settings: a call is an HTTP request.
///
/// The URL is the user's own, so it may be private. The proxies of the environment are used.
pub struct HttpToolCall {
    spec: ToolSpec,
    instructions: Option<String>,
    url: Url,
    method: HttpMethod,
    headers: HeaderMap,
    context: bool,
    redactors: [Redactor; 2],
    limits: Limits,
}

/// The argument that carries the memory of the workflow.
const CONTEXT: &str = "__context";

/// The longest URL that is sent, in bytes.
const MAX_URL: usize = 32_768;

/// The memory of the workflow makes no URL longer than this: many servers accept no longer ones.
const MAX_URL_WITH_CONTEXT: usize = 8_000;

impl HttpToolCall {
    /// The tool, to be called with these headers: those of its settings, with variables put in.
    /// The redactor redacts responses; values of headers that come from variables
    /// or that have secret names are redacted in any case.
    ///
    /// # Errors
    ///
    /// Its URL is not valid, its parameters are not an object, or a header cannot be sent.
    pub fn new(
        tool: HttpTool,
        headers: &BTreeMap<String, String>,
        redactor: Redactor,
    ) -> Result<Self, SetupError> {
        let HttpTool { name, description, parameters, url, method, context, .. } = tool;
        let url = Url::parse(&url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
        let url = url.ok_or_else(|| SetupError::Url(name.clone()))?;
        if !parameters.is_object() {
            return Err(SetupError::Parameters(name));
        }
        let mut sent = HeaderMap::new();
        for (header, value) in headers {
            let (header, value) = self::header(header, value)
                .ok_or_else(|| SetupError::Header(header.clone(), name.clone()))?;
            sent.insert(header, value);
        }
        Ok(Self {
            redactors: [redactor, of_headers(&tool.headers, headers)],
            spec: ToolSpec { name, description, parameters: Arc::new(parameters) },
            instructions: tool.instructions,
            url,
            method,
            headers: sent,
            context,
            limits: Limits::default(),
        })
    }

    /// With other limits than the default ones.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    async fn run(&self, call: Call<'_>) -> Result<Output, FetchError> {
        let limit = self.limits.time;
        let done = tokio::time::timeout(limit, self.ask(call.arguments, call.context)).await;
        done.map_err(|_| FetchError::Time(limit))?
    }

    async fn ask(
        &self,
        arguments: &Map<String, Value>,
        context: &ToolContext,
    ) -> Result<Output, FetchError> {
        let mut method = method(self.method);
        let (mut url, arguments) = if method == Method::GET {
            (self.with_query(arguments, context)?, Map::new())
        } else {
            (self.url.clone(), self.with_context(arguments, context)?)
        };
        for _ in 0..=REDIRECTS {
            let mut request = CLIENT.get(|builder| builder)?.request(method.clone(), url.clone());
            if method != Method::GET {
                request = request.json(&arguments);
            }
            let response = request.headers(self.headers.clone()).send().await?;
            let status = response.status();
            let next = if status.is_redirection() {
                redirect(&url, &body::header(response.headers(), &LOCATION))?
            } else {
                None
            };
            let Some(next) = next else { return self.answer(response).await };
            if next.origin() != url.origin() {
                return Err(FetchError::Elsewhere(next.origin().ascii_serialization()));
            }
            if ![StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&status) {
                method = Method::GET;
            }
            url = next;
        }
        Err(FetchError::Redirects(REDIRECTS))
    }

    fn with_context(
        &self,
        arguments: &Map<String, Value>,
        context: &ToolContext,
    ) -> Result<Map<String, Value>, FetchError> {
        let mut arguments = arguments.clone();
        // An agent must not forge what the tool takes for the workflow's own memory.
        arguments.shift_remove(CONTEXT);
        if self.context {
            let context = serde_json::to_value(context);
            let context = context.map_err(|error| FetchError::Http(error.to_string()))?;
            arguments.insert(CONTEXT.to_owned(), context);
        }
        Ok(arguments)
    }

    /// The URL with the arguments, and as much of the context as fits: the oldest turns are dropped
    /// first.
    fn with_query(
        &self,
        arguments: &Map<String, Value>,
        context: &ToolContext,
    ) -> Result<Url, FetchError> {
        let mut context = context.clone();
        loop {
            let mut url = self.url.clone();
            add_query(&mut url, &self.with_context(arguments, &context)?);
            let bytes = url.as_str().len();
            if self.context && bytes > MAX_URL_WITH_CONTEXT {
                if !context.recent_turns.is_empty() {
                    context.recent_turns.remove(0);
                    continue;
                }
                if !context.workflow_summary.is_empty() {
                    context.workflow_summary.clear();
                    continue;
                }
            }
            return if bytes > MAX_URL { Err(FetchError::TooLong(bytes)) } else { Ok(url) };
        }
    }

    async fn answer(&self, response: reqwest::Response) -> Result<Output, FetchError> {
        let status = response.status();
        let body = body::read(response, self.limits.bytes).await;
        if status.is_success() {
            let body = body?;
            let mut text = self.redact(&body.text, body.cut);
            if text.trim().is_empty() {
                text = format!("{status}, without content");
            }
            if body.cut {
                text.push_str("\n\n[the answer is too long: its end was not read]\n");
            }
            return Ok(Output::ok(text));
        }
        let (text, cut) = match &body {
            Ok(body) => (body.text.clone(), body.cut),
            Err(error) => (error.to_string(), false),
        };
        let text = self.redact(&text, cut);
        let gap = if text.trim().is_empty() { "" } else { "\n\n" };
        let text = head(text.trim(), EXCERPT);
        let step = self.step(status);
        Ok(Output::error(format!("{} answered {status}: {step}{gap}{text}", self.origin())))
    }

    /// The origin of its URL. The rest of the URL may be as secret as a header.
    fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// What to do about a status that is not a success.
    fn step(&self, status: StatusCode) -> String {
        let wrong = match status.as_u16() {
            408 | 425 | 429 | 500.. => return "try again later".to_owned(),
            401 | 403 => "headers",
            300..=399 | 404 | 405 | 410 => "url and method",
            _ => return "check the arguments".to_owned(),
        };
        format!("check {wrong} of the tool `{}` in the settings", self.spec.name)
    }

    fn failed(&self, error: &FetchError) -> Output {
        let mut text = error.to_string();
        if let FetchError::Http(_) | FetchError::BadRedirect = error {
            let origin = self.origin();
            let name = &self.spec.name;
            text = format!(
                "{text}: check that {origin} can be reached, and url of the tool `{name}` in the settings"
            );
        }
        Output::error(head(&self.redact(&text, false), EXCERPT))
    }

    /// Redacts before anything is cut, because half a secret would not be found. The start of a secret
    /// at the end of a text that was cut already is left out.
    fn redact(&self, text: &str, cut: bool) -> String {
        let mut text = text.to_owned();
        for redactor in &self.redactors {
            if cut {
                let bytes = redactor.stream().push(text.as_bytes());
                text = String::from_utf8_lossy(&bytes).into_owned();
            } else {
                text = redactor.redact(&text).into_owned();
            }
        }
        text
    }
}

#[async_trait]
impl Tool for HttpToolCall {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let run = async { self.run(call).await.unwrap_or_else(|error| self.failed(&error)) };
        unless_canceled(call.cancel, run).await
    }
}

/// All tools share one client: URL and headers are in each request.
static CLIENT: Lazy = Lazy::new();

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// A redactor for the values that are or may be secret.
fn of_headers(written: &BTreeMap<String, String>, resolved: &BTreeMap<String, String>) -> Redactor {
    let secret =
        |name: &str, value: &String| is_secret_name(name) || written.get(name) != Some(value);
    let secrets = resolved.iter().filter(|(name, value)| secret(name, value));
    // The part after `Bearer` is a secret by itself.
    Redactor::new(secrets.flat_map(|(name, value)| {
        let part = value.split_once(' ').map(|(_, part)| (name.as_str(), part));
        part.into_iter().chain([(name.as_str(), value.as_str())])
    }))
}

/// Adds strings as they are and other values as JSON; each item of a list under the name of the list.
fn add_query(url: &mut Url, arguments: &Map<String, Value>) {
    if arguments.is_empty() {
        return;
    }
    let mut query = url.query_pairs_mut();
    for (name, value) in arguments {
        let items = match value {
            Value::Null => &[],
            Value::Array(items) => items.as_slice(),
            value => std::slice::from_ref(value),
        };
        for item in items {
            match item {
                Value::String(text) => query.append_pair(name, text),
                other => query.append_pair(name, &other.to_string()),
            };
        }
    }
}
