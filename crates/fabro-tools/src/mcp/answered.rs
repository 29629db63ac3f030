use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

/// What is said of a request that was taken, but not answered. The protocol has that for notifications only; its
/// result would be awaited until the timeout of the call.
const NO_ANSWER: &str = "it took the request without an answer, which the protocol has for notifications only; the \
    call may have taken effect";

/// What is said of an answer that has the id of another request.
const OTHER_ANSWER: &str =
    "its answer has the id of another request; the call may have taken effect";

/// An HTTP client for which a request without its answer is an error.
#[derive(Clone)]
pub(crate) struct Answered<C>(pub(crate) C);

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for Answered<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let request = request_id(&message);
        let response = self.0.post_message(uri, message, session, auth, headers).await?;
        answered(response, request)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let request = request_id(&message);
        let sent =
            self.0.post_message_with_max_sse_event_size(uri, message, session, auth, headers, most);
        answered(sent.await?, request)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        self.0.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<C::Error>> {
        self.0.get_stream(uri, session, last, auth, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<C::Error>> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, most).await
    }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

fn answered<E: std::error::Error + Send + Sync + 'static>(
    response: StreamableHttpPostResponse,
    request: Option<RequestId>,
) -> Result<StreamableHttpPostResponse, StreamableHttpError<E>> {
    let problem = match (&response, request) {
        (StreamableHttpPostResponse::Accepted, Some(_)) => NO_ANSWER,
        (
            StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Response(answer), _),
            Some(request),
        ) if answer.id != request => OTHER_ANSWER,
        _ => return Ok(response),
    };
    Err(StreamableHttpError::UnexpectedServerResponse(problem.into()))
}
