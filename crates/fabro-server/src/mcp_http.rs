//! The tools over HTTP: the streamable transport of the Model Context Protocol, one response for each request. There
//! are no sessions and no streams, so a restart of the server loses nothing.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use rmcp::RoleServer;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, Implementation,
    InitializeRequestParams, JsonRpcError, JsonRpcRequest, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::serve_directly;
use rmcp::transport::OneshotTransport;
use serde_json::Value;

use crate::api::{is_json, json, not_json};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::guard::authorized;
use crate::mcp::Tools;
use crate::problem::Problem;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The field of `_meta` that repeats the version.
const VERSION_IN_META: &str = "io.modelcontextprotocol/protocolVersion";

/// Where the tools are served.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/mcp", post(answer).fallback(no_stream))
}

async fn no_stream() -> Response {
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "there are neither streams nor sessions here",
        "send each message as a POST",
    );
    ([(header::ALLOW, "POST")], problem).into_response()
}

async fn answer(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    // Programs send a token; a browser's cookie is for the pages.
    let caller = authorized(caller.filter(|caller| !caller.by_cookie), Role::Read)?;
    if !is_json(&headers) {
        return Err(not_json());
    }
    let request = match parse(&headers, &body) {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(StatusCode::ACCEPTED.into_response()),
        Err(error) => {
            let message = ServerJsonRpcMessage::Error(*error);
            return Ok(json_rpc(&message, StatusCode::BAD_REQUEST));
        }
    };
    let version = version_of(&request, &headers);
    let is_modern = version >= ProtocolVersion::V_2026_07_28;
    let peer =
        InitializeRequestParams::new(ClientCapabilities::default(), Implementation::default())
            .with_protocol_version(version);
    let actions = app.actions.clone();
    let tools = Tools { actions, role: caller.role, run: None, user: caller.name().to_owned() };
    let message = ClientJsonRpcMessage::Request(request);
    let (transport, mut answers) = OneshotTransport::<RoleServer>::new(message);
    // Dropped, and so canceled, when the client has gone.
    let _service = serve_directly(tools, transport, Some(peer));
    while let Some(message) = answers.recv().await {
        if !matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)) {
            continue;
        }
        let status = if is_modern { status_of(&message) } else { StatusCode::OK };
        return Ok(json_rpc(&message, status));
    }
    let error = ErrorData::internal_error("the request has no answer", None);
    let message = ServerJsonRpcMessage::Error(JsonRpcError::new(None, error));
    Ok(json_rpc(&message, StatusCode::INTERNAL_SERVER_ERROR))
}

/// The request in a body; `None` for a notification.
fn parse(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<JsonRpcRequest<ClientRequest>>, Box<JsonRpcError>> {
    let refused = |id, error| Box::new(JsonRpcError::new(id, error));
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| refused(None, ErrorData::parse_error(error.to_string(), None)))?;
    let id: Option<RequestId> = serde_json::from_value(value["id"].clone()).ok();
    same_as_headers(headers, &value).map_err(|error| refused(id.clone(), error))?;
    let invalid = |text: String| refused(id.clone(), ErrorData::invalid_request(text, None));
    match serde_json::from_value(value) {
        Ok(ClientJsonRpcMessage::Request(request)) => Ok(Some(request)),
        Ok(ClientJsonRpcMessage::Notification(_)) => Ok(None),
        Ok(_) => Err(invalid("nothing was asked of the client".to_owned())),
        Err(error) => Err(invalid(error.to_string())),
    }
}

/// Checks the headers that repeat what the body says. From the version of 2026-07-28 on they have to be there,
/// except in the handshake of earlier versions.
fn same_as_headers(headers: &HeaderMap, body: &Value) -> Result<(), ErrorData> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let version = text(VERSION);
    if let Some(version) = version
        && !ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version)
    {
        let known = ProtocolVersion::KNOWN_VERSIONS;
        let data = serde_json::json!({"requested": version, "supported": known});
        let code = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION;
        return Err(ErrorData::new(code, "Unsupported protocol version", Some(data)));
    }
    let method = body["method"].as_str();
    let is_modern = version >= Some(ProtocolVersion::STANDARD_HEADERS.as_str());
    let is_repeated = is_modern && method != Some("initialize");
    let name = body["params"]["name"].as_str();
    let in_meta = body["params"]["_meta"][VERSION_IN_META].as_str();
    for (header, expect) in [
        (METHOD, method.filter(|_| is_repeated)),
        (NAME, name.filter(|_| is_repeated && method == Some("tools/call"))),
        (VERSION, in_meta),
    ] {
        if expect.is_some() && text(header.clone()) != expect {
            let body = expect.unwrap_or_default();
            let message = format!("the header {header} is not `{}`", body.escape_debug());
            return Err(ErrorData::header_mismatch(message, None));
        }
    }
    Ok(())
}

/// The version that a request is for. Without a word about it, the one before there was a header.
fn version_of(request: &JsonRpcRequest<ClientRequest>, headers: &HeaderMap) -> ProtocolVersion {
    if let ClientRequest::InitializeRequest(hello) = &request.request {
        return hello.params.protocol_version.clone();
    }
    let named = headers.get(VERSION).and_then(|value| value.to_str().ok());
    let mut known = ProtocolVersion::KNOWN_VERSIONS.iter();
    let found = known.find(|known| Some(known.as_str()) == named);
    found.cloned().unwrap_or(ProtocolVersion::V_2025_03_26)
}

/// The status of a message; before the version of 2026-07-28 it is always 200.
fn status_of(message: &ServerJsonRpcMessage) -> StatusCode {
    let ServerJsonRpcMessage::Error(error) = message else { return StatusCode::OK };
    match error.error.code {
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH
        | ErrorCode::INVALID_PARAMS => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn json_rpc(message: &ServerJsonRpcMessage, status: StatusCode) -> Response {
    (status, json(message)).into_response()
}
