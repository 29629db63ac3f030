use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_config::{HttpMethod, HttpTool};
use fabro_llm::ToolSpec;
use fabro_redact::Redactor;
use fabro_types::Permissions;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use serde_json::{Map, Value, json};

use super::body;
use super::client::{builder, chain};
use crate::call::canceled;
use crate::schema::Schema;
use crate::{Call, Output, Tool, ToolContext};

/// How long one call may take.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// What a tool is told of the workflow stands under this key.
const CONTEXT: &str = "__context";

/// The longest name of a tool that providers take.
const NAME: usize = 64;

/// Settings that make no tool. None of them repeats a value of a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpToolError {
    /// Its name is none that providers take.
    #[error("tool `{name}`: a name has 1 to 64 letters, digits, `_` and `-`")]
    Name {
        /// The name.
        name: String,
    },
    /// Its address is none.
    #[error("tool `{name}`: url must be an http or https URL")]
    Url {
        /// The tool.
        name: String,
    },
    /// A header cannot be sent.
    #[error("tool `{name}`: header `{header}` has a character that headers cannot have")]
    Header {
        /// The tool.
        name: String,
        /// The name of the header.
        header: String,
    },
    /// Its parameters are no JSON Schema of an object.
    #[error("tool `{name}`: parameters is no JSON Schema of an object: {problem}")]
    Parameters {
        /// The tool.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// No client can be made.
    #[error("tool `{name}`: {problem}")]
    Client {
        /// The tool.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

/// A tool that is a web address, from its settings; `$NAME` in headers is already replaced.
///
/// The arguments are the JSON body (for GET, the query), and where the settings say `context`,
/// `__context` holds `{workflow_summary, recent_turns, round}`. A model cannot set `__context`
/// itself. Values of headers are blanked out of what the tool gives back. Redirects are not
/// followed, and an address of the own machine is as good as any: it is the author's choice.
///
/// # Errors
///
/// The settings do not make a tool.
///
/// ```
/// use fabro_config::HttpTool;
///
/// let settings = HttpTool {
///     name: "search_docs".into(),
///     description: "Searches the documentation.".into(),
///     parameters: serde_json::json!({"type": "object", "properties": {"query": {"type": "string"}}}),
///     url: "https://docs.example/search".into(),
///     ..HttpTool::default()
/// };
/// let tool = fabro_tools::http_tool(&settings)?;
/// assert_eq!(tool.spec().name, "search_docs");
/// # Ok::<(), fabro_tools::HttpToolError>(())
/// ```
pub fn http_tool(settings: &HttpTool) -> Result<Arc<dyn Tool>, HttpToolError> {
    let name = settings.name.clone();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME || !name.chars().all(is_name) {
        return Err(HttpToolError::Name { name });
    }
    let url = Url::parse(&settings.url).ok();
    let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Err(HttpToolError::Url { name });
    };
    let parameters = parameters(settings)
        .map_err(|problem| HttpToolError::Parameters { name: name.clone(), problem })?;
    let client = builder()
        .timeout(TIME_LIMIT)
        .build()
        .map_err(|error| HttpToolError::Client { name: name.clone(), problem: chain(&error) })?;
    Ok(Arc::new(Http {
        spec: ToolSpec {
            name,
            description: settings.description.clone(),
            parameters: Arc::new(parameters),
        },
        url,
        method: settings.method,
        headers: headers(settings)?,
        redactor: redactor(settings),
        context: settings.context,
        instructions: settings.instructions.clone(),
        client,
    }))
}

fn parameters(settings: &HttpTool) -> Result<Value, String> {
    let mut parameters = settings.parameters.clone();
    if parameters.is_null() {
        parameters = json!({});
    }
    Schema::compile(&parameters)?;
    // Left out by many, demanded by most providers.
    if let Value::Object(schema) = &mut parameters {
        schema.entry("type").or_insert_with(|| json!("object"));
        schema.entry("properties").or_insert_with(|| json!({}));
        if schema["type"] != "object" {
            return Err("its type is not `object`".to_owned());
        }
    }
    Ok(parameters)
}

fn headers(settings: &HttpTool) -> Result<HeaderMap, HttpToolError> {
    let mut headers = HeaderMap::new();
    for (header, value) in &settings.headers {
        let parsed =
            HeaderName::from_bytes(header.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        let Some((key, mut value)) = parsed else {
            let (name, header) = (settings.name.clone(), header.clone());
            return Err(HttpToolError::Header { name, header });
        };
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// Blanks out the values of headers, and what follows `Bearer` and the like in them. What every
/// client sends, such as media types, is no secret.
fn redactor(settings: &HttpTool) -> Redactor {
    const PLAIN: [&str; 4] = ["accept", "content-type", "user-agent", "accept-language"];
    let secret = settings
        .headers
        .iter()
        .filter(|(name, _)| !PLAIN.contains(&name.to_ascii_lowercase().as_str()));
    Redactor::new(secret.flat_map(|(name, value)| {
        let last = value.split_once(' ').map(|(_, rest)| rest.trim());
        [Some(value.as_str()), last].into_iter().flatten().map(move |value| (name.as_str(), value))
    }))
}

struct Http {
    spec: ToolSpec,
    url: Url,
    method: HttpMethod,
    headers: HeaderMap,
    redactor: Redactor,
    context: bool,
    instructions: Option<String>,
    client: Client,
}

#[async_trait]
impl Tool for Http {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::Full
    }

    fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let output = tokio::select! {
            biased;
            () = call.cancel.cancelled() => canceled(),
            output = self.send(call.arguments, call.context) => output.unwrap_or_else(|problem| {
                Output::error(format!("`{}` failed: {problem}", self.spec.name))
            }),
        };
        let text = self.redactor.redact(&output.text).into_owned();
        Output { text, ..output }
    }
}

impl Http {
    async fn send(
        &self,
        arguments: &Map<String, Value>,
        context: &ToolContext,
    ) -> Result<Output, String> {
        let mut arguments = arguments.clone();
        arguments.shift_remove(CONTEXT);
        if self.context {
            arguments.insert(CONTEXT.to_owned(), json!(context));
        }
        let mut url = self.url.clone();
        let mut body = None;
        if self.method == HttpMethod::Get {
            append_query(&mut url, &arguments);
        } else {
            body = Some(Value::Object(arguments).to_string());
        }
        let mut request = self.client.request(method(self.method), url);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        // Last, so that they may say otherwise.
        let response = request.headers(self.headers.clone()).send().await;
        let response = response.map_err(|error| chain(&error))?;
        let status = response.status();
        let body = body::read(response).await?;
        let cut = if body.is_cut { "\n[only the first 1 MiB was read]" } else { "" };
        let text = if body.text.is_empty() { "[no content]".to_owned() } else { body.text + cut };
        if status.is_success() {
            return Ok(Output::ok(text));
        }
        Err(format!("the server answered {status}: {text}"))
    }
}

/// Text as it is, everything else as JSON.
fn append_query(url: &mut Url, arguments: &Map<String, Value>) {
    if arguments.is_empty() {
        return;
    }
    let mut query = url.query_pairs_mut();
    for (name, value) in arguments {
        match value {
            Value::String(text) => query.append_pair(name, text),
            other => query.append_pair(name, &other.to_string()),
        };
    }
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}
