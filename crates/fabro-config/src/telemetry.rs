use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `[telemetry]`: where the traces of runs are sent when they end or pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetrySettings {
    /// `otlp`: a collector that takes OTLP over HTTP.
    pub otlp: Option<String>,
    /// `headers`: sent with each request. As written: `$NAME` is an environment variable.
    pub headers: BTreeMap<String, String>,
    /// `content`: prompts, answers, and arguments and results of tools are sent too.
    pub content: Option<bool>,
}

impl TelemetrySettings {
    /// These settings, completed from weaker ones; headers belong to their collector.
    #[must_use]
    pub(crate) fn or(self, weaker: Self) -> Self {
        let content = self.content.or(weaker.content);
        let (otlp, headers) = if self.otlp.is_some() {
            (self.otlp, self.headers)
        } else {
            (weaker.otlp, weaker.headers)
        };
        Self { otlp, headers, content }
    }
}
