//! What a request body is made from on each HTTP interface.

use std::borrow::Cow;

use serde_json::Value;

use super::concessions::{Concessions, Server};
use super::efforts;
use super::history::{self, ReasoningSource};
use super::interface::Wire;
use super::names::IdForm;
use super::prefix::PrefixHash;
use super::{Provider, ProviderKind, gemini, names, speed};
use crate::{Content, ErrorKind, ModelError, ModelInfo, ReasoningEffort, Request, ThinkingMode};

/// Models that require the reasoning of every answer back.
const REASONING_REQUIRED: [&str; 3] = ["deepseek-v", "deepseek-flash", "kimi-"];

/// Models that refuse reasoning in a request.
const REASONING_REFUSED: [&str; 2] = ["deepseek-reasoner", "deepseek-r1"];

/// The effort that a request names.
fn effort(word: &str) -> Result<ReasoningEffort, ModelError> {
    // Older workflows say `zero`.
    if word == "zero" {
        return Ok(ReasoningEffort::None);
    }
    word.parse().map_err(|_| {
        let known: Vec<_> = ReasoningEffort::ALL.iter().map(|it| format!("`{it}`")).collect();
        let known = fabro_types::one_of(&known);
        invalid(format!("reasoning effort `{word}` is not known: use {known}"))
    })
}

/// What a request body is made from: decisions that do not depend on the wire.
pub(super) struct WireRequest<'a> {
    pub(super) wire: Wire,
    pub(super) provider: &'a Provider,
    /// As the provider knows it.
    pub(super) model: &'a str,
    /// With names and ids that this provider accepts.
    pub(super) request: Cow<'a, Request>,
    /// How the model thinks, where that is known.
    pub(super) thinking: Option<ThinkingMode>,
    /// The requested effort, as near as the model takes it. `None` where nothing was asked for and the
    /// model decides itself, or where it does not think.
    pub(super) effort: Option<ReasoningEffort>,
    /// The efforts that the model has words for.
    pub(super) efforts: &'a [ReasoningEffort],
    /// The requested limit, at most what the model can do.
    pub(super) max_tokens: Option<u32>,
    /// The longest answer of the model, where that is known.
    pub(super) max_output_tokens: Option<u32>,
    /// The requested speed, where the model has it.
    pub(super) speed: Option<&'a str>,
    accepts_schema: bool,
    /// The server, where it has rules of its own.
    pub(super) server: Option<Server>,
    /// What this server does not take.
    pub(super) concessions: Concessions,
    /// What differs from the request, for the user.
    pub(super) warnings: Vec<String>,
    /// The hash of the request.
    pub(super) prefix: PrefixHash,
}

impl<'a> WireRequest<'a> {
    pub(super) fn new(
        provider: &'a Provider,
        model: &'a str,
        info: Option<&'a ModelInfo>,
        request: &'a Request,
        concessions: Concessions,
    ) -> Result<Self, ModelError> {
        let wire = concessions.wire.unwrap_or_else(|| Wire::of(provider, model, info));
        let wanted = request.reasoning_effort.as_deref().map(effort).transpose()?;
        let has_tools = !request.tools.is_empty();
        let effort = match wanted {
            Some(wanted) => efforts::sent(wanted, info, wire, has_tools),
            None => efforts::sent_unasked(info, wire, has_tools),
        };
        let effort = effort.filter(|effort| !concessions.refused_efforts.contains(*effort));
        let most = info.and_then(|info| info.max_output_tokens);
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        // No reasoning is of this name.
        let reasoning_of =
            if concessions.no_reasoning { "" } else { wire.reasoning_provider(provider.kind) };
        let source = ReasoningSource { provider: reasoning_of, model };
        let server = Server::of(provider, info);
        let ids = if server == Some(Server::Mistral) { IdForm::Short } else { IdForm::Usual };
        let concessions = concessions.of_server(server);
        let accepts_schema = provider.output_schema != Some(false)
            && info.and_then(|info| info.output_schema) != Some(false);
        let wanted_speed = request.speed.as_deref();
        let speed = wanted_speed
            .filter(|word| !concessions.no_speed && speed::is_sent(word, info, wire, server));
        let mut request = names::fit(provider.kind, ids, request);
        if concessions.streams_only && !request.streams {
            request.to_mut().streams = true;
        }
        let (request, prefix) = history::fit(request, source);
        Ok(Self {
            wire,
            provider,
            model,
            thinking: info.and_then(|info| info.thinking),
            effort,
            efforts: info.and_then(|info| info.efforts.as_deref()).unwrap_or_default(),
            max_tokens: request.max_tokens.map(|wanted| wanted.min(most.unwrap_or(u32::MAX))),
            max_output_tokens: most,
            speed,
            accepts_schema,
            server,
            concessions,
            warnings: wanted
                .and_then(|wanted| efforts::warning(wanted, effort, model))
                .into_iter()
                .chain(wanted_speed.and_then(|it| speed::warning(it, speed, concessions, model)))
                .collect(),
            request,
            prefix,
        })
    }

    /// The JSON Schema of the answer, unless the model or its server is known not to accept one.
    pub(super) fn output_schema(&self) -> Option<&Value> {
        let has_tools = !self.request.tools.is_empty();
        let is_accepted = self.accepts_schema && takes_schema(self.concessions, has_tools);
        self.request.output_schema.as_deref().filter(|_| is_accepted)
    }

    /// Whether usage is asked for in a stream of Chat Completions.
    pub(super) fn has_stream_options(&self) -> bool {
        let has_tools = !self.request.tools.is_empty();
        let is_accepted = self.concessions.stream_options.is_sent(has_tools);
        self.wire == Wire::ChatCompletions && self.request.streams && is_accepted
    }

    /// Whether every answer of the model has to come back with its reasoning, be it empty.
    pub(super) fn needs_reasoning(&self) -> bool {
        self.is_of(&REASONING_REQUIRED)
    }

    /// Whether calls have to have a signature: Gemini's on its compatible interface.
    pub(super) fn needs_signatures(&self) -> bool {
        self.model.starts_with("gemini-") && gemini::checks_signatures(self.model)
    }

    /// Whether the model refuses its own reasoning.
    pub(super) fn refuses_reasoning(&self) -> bool {
        self.is_of(&REASONING_REFUSED)
    }

    fn is_of(&self, families: &[&str]) -> bool {
        let name = self.model.rsplit('/').next().unwrap_or(self.model).to_ascii_lowercase();
        families.iter().any(|family| name.starts_with(family))
    }

    /// Whether reasoning of earlier answers is sent.
    pub(super) fn has_reasoning(&self) -> bool {
        let mut contents = self.request.messages.iter().flat_map(|message| &message.content);
        contents.any(|content| matches!(content, Content::Reasoning(_)))
    }

    /// Whether the model is known to think.
    pub(super) fn thinks(&self) -> bool {
        self.thinking.is_some_and(|mode| mode != ThinkingMode::Never)
    }

    /// The service tier in the words of `OpenAI`.
    pub(super) fn openai_tier(&self) -> Option<&str> {
        match self.speed {
            Some("fast") => Some("priority"),
            Some("standard") => Some("default"),
            other => other,
        }
    }

    /// The prompt-cache key. Compatible servers may not know it.
    pub(super) fn openai_cache_key(&self) -> Option<&str> {
        let is_openai = self.provider.kind != ProviderKind::OpenAiCompatible;
        let is_default_address = self.provider.base_url.is_none();
        self.request.cache_key.as_deref().filter(|_| is_openai && is_default_address)
    }
}

/// Whether the server takes the schema, as far as it has refused one.
fn takes_schema(concessions: Concessions, has_tools: bool) -> bool {
    !concessions.no_schema && concessions.schema.is_sent(has_tools)
}

/// A request that is refused before it is sent.
pub(super) fn invalid(message: String) -> ModelError {
    let error = ModelError::new(ErrorKind::InvalidRequest).with_message(message);
    // No request was made.
    ModelError { usage: Box::default(), ..error }
}
