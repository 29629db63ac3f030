//! A transport that completes what servers leave out of `server/discover`.

use std::future::Future;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, DiscoverResult, JsonRpcMessage, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use serde_json::{Value, json};

/// The same transport; a description of the server that lacks members becomes a whole one.
pub(crate) struct Lenient<T>(pub(crate) T);

impl<T: Transport<RoleClient>> Transport<RoleClient> for Lenient<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.0.send(item)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.0.receive().await.map(completed)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.0.close()
    }
}

fn completed(mut message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    if let JsonRpcMessage::Response(response) = &mut message
        && let ServerResult::CustomResult(other) = &response.result
        && let Some(description) = description(&other.0)
    {
        response.result = ServerResult::DiscoverResult(description);
    }
    message
}

/// The description of a server; `None` for another result.
fn description(result: &Value) -> Option<DiscoverResult> {
    let mut whole = json!({
        "resultType": "complete",
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    });
    // Nothing else has it.
    whole["supportedVersions"] = result.get("supportedVersions")?.clone();
    for key in ["capabilities", "instructions", "_meta"] {
        if let Some(value) = result.get(key).filter(|value| !value.is_null()) {
            whole[key] = value.clone();
        }
    }
    serde_json::from_value(whole).ok()
}
