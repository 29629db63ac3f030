//! What the tools have in common.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabro_llm::ToolSpec;
use fabro_redact::Redactor;
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

/// The arguments, typed. A [`ToolSet`](crate::ToolSet) has checked them against the schema, for which
/// `5.0` is an integer.
pub(crate) fn arguments<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, String> {
    let mut arguments = call.arguments.clone();
    arguments.values_mut().for_each(make_whole);
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| format!("the arguments are not valid: {error}"))
}

/// Writes a number without a fraction as an integer, where it is one exactly.
fn make_whole(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_f64().filter(|_| value.is_f64());
    if let Some(number) = number.filter(|it| it.fract() == 0.0 && it.abs() <= EXACT) {
        #[expect(clippy::cast_possible_truncation, reason = "it is an integer and in range")]
        let whole = number as i64;
        *value = whole.into();
    }
}

/// Runs blocking work on another thread. It is asked to stop when the call is canceled or
/// dropped, and at its timeout.
pub(crate) async fn blocking(
    call: &Call<'_>,
    work: impl FnOnce(&Stop) -> Output + Send + 'static,
) -> Output {
    let token = call.cancel.child_token();
    let _stopped_when_dropped = token.clone().drop_guard();
    let stop = Stop { token, deadline: Instant::now() + TIMEOUT, redactor: call.redactor.clone() };
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

/// Whether work should stop: because of a cancellation or the timeout. And what its output is redacted by.
pub(crate) struct Stop {
    token: CancellationToken,
    deadline: Instant,
    redactor: Redactor,
}

impl Stop {
    /// For texts that are cut.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_canceled() || Instant::now() >= self.deadline
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.token.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_an_integer() {
        let check = |mut value: Value, expect: Value| {
            make_whole(&mut value);
            assert_eq!(value, expect);
        };
        check(json!(5.0), json!(5));
        check(json!(-0.0), json!(0));
        check(json!(5.5), json!(5.5));
        check(json!(1e300), json!(1e300));
        check(json!("5.0"), json!("5.0"));
        check(json!(7), json!(7));
    }
}
