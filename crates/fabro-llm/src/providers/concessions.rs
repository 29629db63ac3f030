//! What a server does not take, known beforehand or from its refusal.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::interface::Wire;
use super::{Provider, ProviderKind};
use crate::{ModelInfo, ReasoningEffort, Request};

/// What is left out of requests to a server, or sent another way.
#[expect(clippy::struct_excessive_bools, reason = "a server refuses each of them on its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Concessions {
    /// The interface, where the usual one was refused.
    pub(super) wire: Option<Wire>,
    pub(super) schema: FieldUse,
    /// The server refuses the JSON Schema of this request; it may take others.
    pub(super) no_schema: bool,
    pub(super) stream_options: FieldUse,
    /// Those that the server refuses; it may take others.
    pub(super) refused_efforts: EffortSet,
    /// The server answers in streams only.
    pub(super) streams_only: bool,
    /// The server refuses the speed of this request; it may take others.
    pub(super) no_speed: bool,
    /// The limit of the answer is `max_completion_tokens`, for a model of any name.
    pub(super) max_completion_tokens: bool,
    /// For this request only: later ones may have what fits.
    pub(super) no_reasoning: bool,
    /// What was conceded just now, for the user.
    pub(super) warning: Option<&'static str>,
}

/// When a field is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FieldUse {
    #[default]
    Always,
    WithoutTools,
    Never,
}

impl FieldUse {
    /// Whether a request has the field.
    pub(super) fn is_sent(self, has_tools: bool) -> bool {
        match self {
            Self::Always => true,
            Self::WithoutTools => !has_tools,
            Self::Never => false,
        }
    }

    /// After a refusal of a request that had the field.
    fn after_refusal(has_tools: bool) -> Self {
        if has_tools { Self::WithoutTools } else { Self::Never }
    }
}

/// A set of efforts, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EffortSet(u8);

impl EffortSet {
    pub(super) fn contains(self, effort: ReasoningEffort) -> bool {
        self.0 & Self::bit(effort) != 0
    }

    fn with(self, effort: ReasoningEffort) -> Self {
        Self(self.0 | Self::bit(effort))
    }

    fn bit(effort: ReasoningEffort) -> u8 {
        1 << effort as u8
    }
}

/// What a server may refuse of a request that can be sent without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedField {
    /// The JSON Schema of the answer, whichever it is.
    Schema,
    /// This JSON Schema of the answer.
    OneSchema,
    /// The reasoning effort.
    Effort,
    /// Reasoning of earlier answers.
    Reasoning,
    StreamOptions,
    /// An answer as a whole.
    WholeAnswer,
    /// The tier of speed.
    Speed,
    /// `max_tokens`, in the place of which it names another field.
    MaxTokens,
    /// Chat Completions for this model, or for its tools.
    ChatCompletions,
    /// There is no such address.
    Address,
}

/// How the refusals of fields are worded, in lower case.
const REFUSED_FIELDS: [(RefusedField, &[&str]); 9] = [
    (RefusedField::MaxTokens, &["use 'max_completion_tokens'"]),
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
        RefusedField::OneSchema,
        &[
            "invalid schema for response_format",
            "invalid schema for text.format",
            "invalid_json_schema",
            "output_config.format.schema",
            "too many states for serving",
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
    // The beta is sent for the speed alone.
    (RefusedField::Speed, &["service_tier", "speed: ", "anthropic-beta", "invalid beta flag"]),
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
    pub(super) stream_options: bool,
    /// The reasoning effort.
    pub(super) effort: Option<ReasoningEffort>,
    /// Reasoning of earlier answers.
    pub(super) reasoning: bool,
    /// The tier of speed.
    pub(super) speed: bool,
    /// The answer is requested in pieces.
    pub(super) streams: bool,
    /// The answer has a limit.
    pub(super) max_tokens: bool,
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
                self.schema.max(FieldUse::WithoutTools)
            } else {
                self.schema
            },
            stream_options: if server == Some(Server::Mistral) {
                FieldUse::Never
            } else {
                self.stream_options
            },
            ..self
        }
    }

    /// The same without what the server refused; `None` where that was not sent.
    fn without(self, field: RefusedField, provider: &Provider, sent: SentFields) -> Option<Self> {
        let conceded = |warning, concessions| Some(Self { warning: Some(warning), ..concessions });
        match field {
            RefusedField::Schema if sent.schema => conceded(
                "the provider does not take the JSON Schema of the answer: only Fabro checks it",
                Self { schema: FieldUse::after_refusal(sent.tools), ..self },
            ),
            RefusedField::OneSchema if sent.schema => conceded(
                "the provider does not take this JSON Schema of the answer: only Fabro checks it",
                Self { no_schema: true, ..self },
            ),
            RefusedField::Effort => conceded(
                "the provider does not take the reasoning effort: it is not sent",
                Self { refused_efforts: self.refused_efforts.with(sent.effort?), ..self },
            ),
            RefusedField::Reasoning if sent.reasoning => Some(Self { no_reasoning: true, ..self }),
            RefusedField::WholeAnswer if !sent.streams => Some(Self { streams_only: true, ..self }),
            RefusedField::Speed if sent.speed => conceded(
                "the provider does not take the speed: it is not sent",
                Self { no_speed: true, ..self },
            ),
            RefusedField::MaxTokens
                if sent.max_tokens
                    && sent.wire == Wire::ChatCompletions
                    && !self.max_completion_tokens =>
            {
                Some(Self { max_completion_tokens: true, ..self })
            }
            RefusedField::StreamOptions if sent.stream_options => {
                Some(Self { stream_options: FieldUse::after_refusal(sent.tools), ..self })
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

/// What servers have refused in this process, by provider and model.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<BTreeMap<(usize, String), Refusals>>);

/// What a server has refused of the requests to one model.
#[derive(Debug, Default)]
struct Refusals {
    /// Those for every request.
    general: Concessions,
    speeds: BTreeSet<String>,
    /// JSON Schemas, as text.
    schemas: BTreeSet<String>,
}

impl Refusals {
    /// The concessions for this request.
    fn concessions(&self, request: &Request) -> Concessions {
        let schema = request.output_schema.as_ref().filter(|_| !self.schemas.is_empty());
        Concessions {
            no_speed: request.speed.as_ref().is_some_and(|speed| self.speeds.contains(speed)),
            no_schema: schema.is_some_and(|schema| self.schemas.contains(&schema.to_string())),
            ..self.general
        }
    }

    fn add(&mut self, field: RefusedField, request: &Request, conceded: Concessions) {
        match field {
            RefusedField::Speed => self.speeds.extend(request.speed.clone()),
            RefusedField::OneSchema => {
                self.schemas.extend(request.output_schema.as_ref().map(ToString::to_string));
            }
            _ => {
                self.general =
                    Concessions { no_speed: false, no_schema: false, ..conceded.remembered() };
            }
        }
    }
}

impl Remembered {
    pub(super) fn get(&self, provider: usize, model: &str, request: &Request) -> Concessions {
        let remembered = self.0.lock();
        let refusals = remembered.get(&(provider, model.to_owned()));
        refusals.map_or_else(Concessions::default, |refusals| refusals.concessions(request))
    }

    /// What to send in the place of what was refused; `None` when there is nothing to concede.
    pub(super) fn concede(
        &self,
        field: RefusedField,
        (index, provider): (usize, &Provider),
        (model, request): (&str, &Request),
        sent: SentFields,
    ) -> Option<Concessions> {
        let conceded = self.get(index, model, request).without(field, provider, sent)?;
        let mut remembered = self.0.lock();
        let refusals = remembered.entry((index, model.to_owned())).or_default();
        refusals.add(field, request, conceded);
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
        let one =
            "Invalid schema for response_format 'answer': In context=(), 'required' is required";
        check(400, one, Some(RefusedField::OneSchema));
        let one = "output_config.format.schema: recursive schemas are not supported";
        check(400, one, Some(RefusedField::OneSchema));
        check(400, "Unknown parameter: 'response_format'", Some(RefusedField::Schema));
        check(422, "extra_forbidden: stream_options", Some(RefusedField::StreamOptions));
        check(400, "Unsupported value: 'reasoning_effort'", Some(RefusedField::Effort));
        check(400, "Invalid `signature` in `thinking` block", Some(RefusedField::Reasoning));
        let whole = "This model only support stream mode, please enable the stream parameter to access the model.";
        check(400, whole, Some(RefusedField::WholeAnswer));
        let tier = "service_tier: Input should be 'auto' or 'standard_only'";
        check(400, tier, Some(RefusedField::Speed));
        check(400, "invalid beta flag", Some(RefusedField::Speed));
        let beta = "Unexpected value(s) `fast-mode-2026-02-01` for the `anthropic-beta` header";
        check(400, beta, Some(RefusedField::Speed));
        let limit = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        check(400, limit, Some(RefusedField::MaxTokens));
        check(500, tools, None);
        check(400, "Invalid value", None);
    }
}
