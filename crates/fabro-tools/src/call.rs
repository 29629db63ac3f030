//! What the tools have in common.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabro_llm::ToolSpec;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Call, Output};

/// The timeout of a call that searches files.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A spec whose arguments are these and no others.
pub(crate) fn spec(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: Arc::new(parameters),
    }
}

/// The arguments, typed. A [`ToolSet`](crate::ToolSet) has checked them against the schema.
pub(crate) fn arguments<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, String> {
    serde_json::from_value(Value::Object(call.arguments.clone()))
        .map_err(|error| format!("the arguments are not valid: {error}"))
}

/// Runs blocking work on another thread. It is asked to stop when the call is canceled or
/// dropped, and at its timeout.
pub(crate) async fn blocking(
    cancel: &CancellationToken,
    work: impl FnOnce(&Stop) -> Output + Send + 'static,
) -> Output {
    let token = cancel.child_token();
    let _stopped_when_dropped = token.clone().drop_guard();
    let stop = Stop { token, deadline: Instant::now() + TIMEOUT };
    match tokio::task::spawn_blocking(move || work(&stop)).await {
        Ok(output) => output,
        Err(error) => Output::error(format!("the call was aborted: {error}")),
    }
}

/// The result of a call, or that it was canceled before.
pub(crate) async fn unless_canceled(
    cancel: &CancellationToken,
    work: impl Future<Output = Output>,
) -> Output {
    tokio::select! {
        biased;
        () = cancel.cancelled() => canceled(),
        output = work => output,
    }
}

pub(crate) fn canceled() -> Output {
    Output::error("the call was canceled")
}

/// Whether work should stop: because of a cancellation or the timeout.
pub(crate) struct Stop {
    token: CancellationToken,
    deadline: Instant,
}

impl Stop {
    pub(crate) fn is_due(&self) -> bool {
        self.is_canceled() || Instant::now() >= self.deadline
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.token.is_cancelled()
    }
}
