//! A request as it is sent, kept with the request so that a retry sends the same bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::concessions::{Concessions, SentFields};
use super::event_reader::EventReader;
use super::interface::Wire;
use super::prefix::PrefixHash;
use super::turn::{Pricing, Turn};
use super::wire::WireRequest;
use super::{Provider, ProviderKind, anthropic, chat_completions, gemini, responses};
use crate::model::RequestCache;
use crate::{Message, ModelError, ModelInfo, Request};

/// A request in the form of one interface, for one model.
#[derive(Debug)]
pub(super) struct PreparedRequest {
    pub(super) wire: Wire,
    /// As the provider knows it.
    pub(super) model: String,
    /// The provider's kind, for reasoning.
    kind: ProviderKind,
    vendor: String,
    /// The JSON.
    pub(super) body: Bytes,
    /// Whether the answer is requested in pieces.
    pub(super) streams: bool,
    /// The requested speed, where the model has it.
    pub(super) speed: Option<String>,
    /// What a server may refuse of it.
    pub(super) fields: SentFields,
    /// What differs from the request, for the user.
    warnings: Vec<String>,
    /// The hash of the request.
    prefix: PrefixHash,
}

impl PreparedRequest {
    fn new(wire: WireRequest<'_>) -> Self {
        Self {
            body: body(&wire),
            kind: wire.provider.kind,
            vendor: wire.provider.vendor().to_owned(),
            streams: wire.request.streams,
            speed: wire.speed.map(str::to_owned),
            fields: SentFields {
                wire: wire.wire,
                tools: !wire.request.tools.is_empty(),
                schema: wire.output_schema().is_some(),
                stream_options: wire.has_stream_options(),
                effort: wire.effort,
                reasoning: wire.has_reasoning(),
                speed: wire.speed.is_some(),
                streams: wire.request.streams,
                max_tokens: wire.max_tokens.is_some(),
            },
            wire: wire.wire,
            model: wire.model.to_owned(),
            warnings: wire.warnings,
            prefix: wire.prefix,
        }
    }

    /// The turn that answers it; `messages` are those of the request.
    pub(super) fn turn(&self, pricing: Pricing, messages: Arc<Vec<Arc<Message>>>) -> Turn {
        let pricing = Pricing { speed: self.speed.clone(), ..pricing };
        let provider = self.wire.reasoning_provider(self.kind);
        let mut turn =
            Turn::new(provider, self.model.clone(), pricing, messages, self.prefix.clone());
        turn.vendor = Some(self.vendor.clone());
        self.warnings.iter().for_each(|text| turn.warn(text.clone()));
        turn
    }
}

/// The body of a request, as JSON.
#[expect(clippy::expect_used, reason = "a value has text keys only")]
fn body(wire: &WireRequest<'_>) -> Bytes {
    let body = match wire.wire {
        Wire::ChatCompletions => chat_completions::request::body(wire),
        Wire::Responses => responses::request::body(wire),
        Wire::Anthropic => anthropic::request::body(wire),
        Wire::Gemini => gemini::request::body(wire),
    };
    serde_json::to_vec(&body).expect("a value is always JSON").into()
}

/// A reader for the events of one answer on this interface.
pub(super) fn event_reader(wire: Wire) -> Box<dyn EventReader> {
    match wire {
        Wire::ChatCompletions => Box::<chat_completions::events::Reader>::default(),
        Wire::Responses => Box::<responses::events::Reader>::default(),
        Wire::Anthropic => Box::<anthropic::events::Reader>::default(),
        Wire::Gemini => Box::<gemini::events::Reader>::default(),
    }
}

/// The last [`PreparedRequest`] made of a request, in the request's cache.
struct Kept {
    /// The index of the provider it is for.
    provider: usize,
    /// What it was made from. Held, so that an equal address means the same messages.
    request: Request,
    /// What the server was known to refuse of any request.
    concessions: Concessions,
    prepared: Arc<PreparedRequest>,
}

/// Which provider and model a request is prepared for.
pub(super) struct Target<'a> {
    /// The index of the provider.
    pub(super) index: usize,
    pub(super) provider: &'a Provider,
    /// As the provider knows it.
    pub(super) model: &'a str,
    pub(super) info: Option<&'a ModelInfo>,
}

/// The request as it is sent to this provider and model. It is built once: a retry, which has the same
/// messages, tools and settings, gets it again.
pub(super) fn prepare(
    request: &Request,
    target: &Target<'_>,
    concessions: Concessions,
) -> Result<Arc<PreparedRequest>, ModelError> {
    let is_remembered = concessions == concessions.remembered();
    // What was conceded for this request alone stays conceded in its retries.
    let kept = request.cache.get::<Kept>().filter(|kept| {
        is_remembered
            && kept.concessions == concessions
            && kept.provider == target.index
            && kept.prepared.model == target.model
            && is_same(&kept.request, request)
    });
    if let Some(kept) = kept {
        return Ok(Arc::clone(&kept.prepared));
    }
    let Target { index, provider, model, info } = *target;
    let wire = WireRequest::new(provider, model, info, request, concessions)?;
    let prepared = Arc::new(PreparedRequest::new(wire));
    // With a cache of its own: one that held itself would never be dropped.
    let held = Request { cache: RequestCache::default(), ..request.clone() };
    request.cache.set(Kept {
        provider: index,
        request: held,
        concessions: concessions.remembered(),
        prepared: Arc::clone(&prepared),
    });
    Ok(prepared)
}

/// Whether two requests to one model have the same body. Messages and tools are compared by their address:
/// a retry shares them.
fn is_same(one: &Request, other: &Request) -> bool {
    let schema = match (&one.output_schema, &other.output_schema) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    schema
        && Arc::ptr_eq(&one.messages, &other.messages)
        && Arc::ptr_eq(&one.tools, &other.tools)
        && one.reasoning_effort == other.reasoning_effort
        && one.speed == other.speed
        && one.max_tokens == other.max_tokens
        && one.cache_key == other.cache_key
        && one.streams == other.streams
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::concessions::FieldUse;

    fn provider(kind: ProviderKind) -> Provider {
        Provider::new("p", kind)
    }

    /// The address of the body: equal addresses are the same bytes, not equal ones.
    fn body_at(request: &Request, index: usize, kind: ProviderKind, model: &str) -> String {
        let provider = provider(kind);
        let target = Target { index, provider: &provider, model, info: None };
        let prepared = prepare(request, &target, Concessions::default()).unwrap();
        format!("{:p}", prepared.body.as_ptr())
    }

    #[test]
    fn a_retry_sends_the_bytes_of_the_first_try() {
        let kind = ProviderKind::OpenAiCompatible;
        let request = Request::new(vec![Message::user("hello").into()]);
        let first = body_at(&request.clone(), 0, kind, "m");
        assert_eq!(body_at(&request.clone(), 0, kind, "m"), first);
        // Where the model is named otherwise than by the provider, both are the same request.
        let named = Request { model: Some("p/m".to_owned()), ..request.clone() };
        assert_eq!(body_at(&named, 0, kind, "m"), first);
    }

    #[test]
    fn another_request_provider_or_model_has_another_body() {
        let kind = ProviderKind::OpenAiCompatible;
        let request = Request::new(vec![Message::user("hello").into()]);
        let target = |provider| Target { index: 0, provider, model: "m", info: None };
        let provider = provider(kind);
        let body = |request: &Request| {
            let prepared = prepare(request, &target(&provider), Concessions::default()).unwrap();
            String::from_utf8(prepared.body.to_vec()).unwrap()
        };
        assert!(body(&request).contains("hello"));
        let mut longer = request.clone();
        Arc::make_mut(&mut longer.messages).push(Message::user("more").into());
        assert!(body(&longer).contains("more"));
        assert!(!body(&request).contains("more"));
        let limited = Request { max_tokens: Some(7), ..request.clone() };
        assert!(body(&limited).contains("\"max_tokens\":7"));
        let first = body_at(&request, 0, kind, "m");
        assert_ne!(body_at(&request, 0, kind, "other"), first);
        assert_ne!(body_at(&request, 1, ProviderKind::Anthropic, "m"), first);
    }

    #[test]
    fn what_a_server_refuses_of_one_request_stays_left_out_of_its_retries() {
        let request = Request::new(vec![Message::user("hello").into()]);
        let provider = provider(ProviderKind::OpenAi);
        let target = Target { index: 0, provider: &provider, model: "m", info: None };
        let first = prepare(&request, &target, Concessions::default()).unwrap();
        let conceded = Concessions { no_reasoning: true, ..Concessions::default() };
        let without = prepare(&request, &target, conceded).unwrap();
        assert!(!Arc::ptr_eq(&first, &without));
        let retried = prepare(&request, &target, Concessions::default()).unwrap();
        assert!(Arc::ptr_eq(&retried, &without));
        // What the server refuses of every request is left out of this one, too.
        let refused = Concessions { stream_options: FieldUse::Never, ..Concessions::default() };
        let later = prepare(&request, &target, refused).unwrap();
        assert!(!String::from_utf8_lossy(&later.body).contains("stream_options"));
    }
}
