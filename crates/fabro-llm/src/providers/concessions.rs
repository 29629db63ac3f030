//! What a server does not take, known beforehand or from its refusal.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::interface::Wire;
use super::{Provider, ProviderKind};
use crate::ModelInfo;

/// What is left out of requests to a server, or sent another way.
#[expect(clippy::struct_excessive_bools, reason = "a server refuses each of them on its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Concessions {
    /// The interface, where the usual one was refused.
    pub(super) wire: Option<Wire>,
    pub(super) schema: SchemaUse,
    pub(super) no_stream_options: bool,
    pub(super) no_effort: bool,
    /// The server answers in streams only.
    pub(super) streams_only: bool,
    /// The server knows no tiers of speed, or not this one.
    pub(super) no_speed: bool,
    /// For this request only: later ones may have what fits.
    pub(super) no_reasoning: bool,
    /// What was conceded just now, for the user.
    pub(super) warning: Option<&'static str>,
}

/// When the JSON Schema of an answer is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SchemaUse {
    #[default]
    Always,
    WithoutTools,
    Never,
}

/// What a server may refuse of a request that can be sent without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedField {
    /// The JSON Schema of the answer.
    Schema,
    /// The reasoning effort.
    Effort,
    /// Reasoning of earlier answers.
    Reasoning,
    StreamOptions,
    /// An answer as a whole.
    WholeAnswer,
    /// The tier of speed.
    Speed,
    /// Chat Completions for this model, or for its tools.
    ChatCompletions,
    /// There is no such address.
    Address,
}

/// How the refusals of fields are worded, in lower case.
const REFUSED_FIELDS: [(RefusedField, &[&str]); 7] = [
    (
        RefusedField::ChatCompletions,
        &[
            "use /v1/responses",
            "use v1/responses",
            "in /v1/chat/completions",
            "in the v1/chat/completions",
        ],
    ),
    (
        RefusedField::Schema,
        &[
            "response_format",
            "json_schema",
            "json schema",
            "json mode",
            "text.format",
            "output_config.format",
            "response mime type",
            "responsejsonschema",
            "custom grammar constraints",
            "structured output",
        ],
    ),
    (RefusedField::StreamOptions, &["stream_options"]),
    (RefusedField::WholeAnswer, &["only support stream", "only supports stream"]),
    (RefusedField::Speed, &["service_tier", "speed: "]),
    (
        RefusedField::Reasoning,
        &[
            "`thinking` block",
            "thinking block",
            "redacted_thinking",
            "encrypted content",
            "encrypted_content",
            "required following item",
            "required 'reasoning' item",
            "items are not persisted",
            "thought_signature",
            "thought signature",
            "reasoning_content",
        ],
    ),
    (RefusedField::Effort, &["reasoning_effort", "reasoning.effort", "output_config.effort"]),
];

impl RefusedField {
    /// What an error is about, where the status is that of a refusal.
    pub(super) fn of(status: u16, text: &str) -> Option<Self> {
        if !matches!(status, 400 | 404 | 405 | 422) {
            return None;
        }
        let text = text.to_ascii_lowercase();
        let is_named = |words: &&[&str]| words.iter().any(|word| text.contains(word));
        let named = REFUSED_FIELDS.iter().find(|(_, words)| is_named(words));
        match named {
            Some((field, _)) => Some(*field),
            None if status == 405 => Some(Self::Address),
            None if status == 404 && !text.contains("model") => Some(Self::Address),
            None => None,
        }
    }
}

/// What of a request a server may refuse.
#[expect(clippy::struct_excessive_bools, reason = "a server refuses each of them on its own")]
#[derive(Clone, Copy, Debug)]
pub(super) struct SentFields {
    pub(super) wire: Wire,
    pub(super) tools: bool,
    /// The JSON Schema of the answer.
    pub(super) schema: bool,
    /// The reasoning effort.
    pub(super) effort: bool,
    /// Reasoning of earlier answers.
    pub(super) reasoning: bool,
    /// The tier of speed.
    pub(super) speed: bool,
    /// The answer is requested in pieces.
    pub(super) streams: bool,
}

/// A server with rules of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Cerebras,
    Groq,
    Mistral,
}

impl Server {
    /// By the provider's name or address, else by the provider of the model.
    pub(super) fn of(provider: &Provider, info: Option<&ModelInfo>) -> Option<Self> {
        let of_model = info.and_then(|info| info.provider.as_deref());
        let places = [Some(&*provider.name), provider.base_url.as_deref(), of_model];
        let is = |name: &str| places.iter().flatten().any(|place| place.contains(name));
        let all = [("cerebras", Self::Cerebras), ("groq", Self::Groq), ("mistral", Self::Mistral)];
        all.into_iter().find(|(name, _)| is(name)).map(|(_, server)| server)
    }
}

impl Concessions {
    /// The same with what is known of the server.
    pub(super) fn of_server(self, server: Option<Server>) -> Self {
        let excludes_tools = matches!(server, Some(Server::Cerebras | Server::Groq));
        Self {
            schema: if excludes_tools {
                self.schema.max(SchemaUse::WithoutTools)
            } else {
                self.schema
            },
            no_stream_options: self.no_stream_options || server == Some(Server::Mistral),
            ..self
        }
    }

    /// The same without what the server refused; `None` where that was not sent.
    fn without(self, field: RefusedField, provider: &Provider, sent: SentFields) -> Option<Self> {
        let conceded = |warning, concessions| Some(Self { warning: Some(warning), ..concessions });
        match field {
            RefusedField::Schema if sent.schema => conceded(
                "the provider does not take the JSON Schema of the answer: only Fabro checks it",
                Self {
                    schema: if sent.tools { SchemaUse::WithoutTools } else { SchemaUse::Never },
                    ..self
                },
            ),
            RefusedField::Effort if sent.effort => conceded(
                "the provider does not take the reasoning effort: it is not sent",
                Self { no_effort: true, ..self },
            ),
            RefusedField::Reasoning if sent.reasoning => Some(Self { no_reasoning: true, ..self }),
            RefusedField::WholeAnswer if !sent.streams => Some(Self { streams_only: true, ..self }),
            RefusedField::Speed if sent.speed => conceded(
                "the provider does not take the speed: it is not sent",
                Self { no_speed: true, ..self },
            ),
            RefusedField::StreamOptions if !self.no_stream_options => {
                Some(Self { no_stream_options: true, ..self })
            }
            // Once, in either direction.
            RefusedField::ChatCompletions
                if sent.wire == Wire::ChatCompletions && self.may_change_wire(provider) =>
            {
                Some(Self { wire: Some(Wire::Responses), ..self })
            }
            RefusedField::Address
                if sent.wire == Wire::Responses && self.may_change_wire(provider) =>
            {
                Some(Self { wire: Some(Wire::ChatCompletions), ..self })
            }
            _ => None,
        }
    }

    /// Those that hold for later requests, too.
    pub(super) fn remembered(self) -> Self {
        Self { warning: None, no_reasoning: false, ..self }
    }

    fn may_change_wire(&self, provider: &Provider) -> bool {
        let kinds = [ProviderKind::OpenAi, ProviderKind::OpenAiCompatible];
        self.wire.is_none() && provider.interface.is_none() && kinds.contains(&provider.kind)
    }
}

/// The concessions of this process, by provider and model.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<BTreeMap<(usize, String), Concessions>>);

impl Remembered {
    pub(super) fn get(&self, provider: usize, model: &str) -> Concessions {
        self.0.lock().get(&(provider, model.to_owned())).copied().unwrap_or_default()
    }

    /// What to send in the place of what was refused; `None` when there is nothing to concede.
    pub(super) fn concede(
        &self,
        field: RefusedField,
        (index, provider): (usize, &Provider),
        model: &str,
        sent: SentFields,
    ) -> Option<Concessions> {
        let conceded = self.get(index, model).without(field, provider, sent)?;
        self.0.lock().insert((index, model.to_owned()), conceded.remembered());
        Some(conceded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_refused() {
        let check = |status: u16, text: &str, expect: Option<RefusedField>| {
            assert_eq!(RefusedField::of(status, text), expect, "{text}");
        };
        let tools = "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions.";
        check(400, tools, Some(RefusedField::ChatCompletions));
        let chat =
            "This is not a chat model and thus not supported in the v1/chat/completions endpoint.";
        check(404, chat, Some(RefusedField::ChatCompletions));
        // A wrong address is no matter of the interface.
        check(404, "Cannot POST /v1/chat/completions", Some(RefusedField::Address));
        check(404, "Cannot POST /v1/responses", Some(RefusedField::Address));
        check(404, "The model `x` does not exist", None);
        check(
            400,
            "json mode cannot be combined with tool/function calling",
            Some(RefusedField::Schema),
        );
        check(422, "extra_forbidden: stream_options", Some(RefusedField::StreamOptions));
        check(400, "Unsupported value: 'reasoning_effort'", Some(RefusedField::Effort));
        check(400, "Invalid `signature` in `thinking` block", Some(RefusedField::Reasoning));
        let whole = "This model only support stream mode, please enable the stream parameter to access the model.";
        check(400, whole, Some(RefusedField::WholeAnswer));
        let tier = "service_tier: Input should be 'auto' or 'standard_only'";
        check(400, tier, Some(RefusedField::Speed));
        check(500, tools, None);
        check(400, "Invalid value", None);
    }
}
