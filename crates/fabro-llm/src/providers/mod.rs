//! Real providers, over HTTP.
//!
//! A module for each HTTP interface, each with `request` (builds JSON) and `events` (reads the events
//! of the answer into a [`turn::Turn`]), both without I/O: `chat_completions`, `responses`,
//! `anthropic`, `gemini`. Everything else is shared: `wire` (what a request body is made from),
//! `http` and `sse` (sending, reading, limits), `failure` and `error_body` (errors), `setup` (TLS), `names` (names and
//! ids that providers accept), `history` and `prefix` (which parts of a conversation go back), `prepared` (a
//! request as it is sent, kept for retries), `routing` (which provider), `list` (which models a server has), `endpoint` (URLs and headers).

mod anthropic;
mod chat_completions;
mod concessions;
mod conversation;
mod deepest;
mod efforts;
mod endpoint;
mod error_body;
mod event_reader;
mod events;
mod failure;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gemini;
mod history;
mod http;
mod interface;
mod list;
mod names;
mod prefix;
mod prepared;
mod provider;
mod responses;
mod routing;
mod schema;
mod setup;
mod speed;
mod sse;
mod turn;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};

use self::concessions::Remembered;
use self::endpoint::Endpoint;
use self::event_reader::{EventReader, Progress};
use self::events::EventError;
use self::http::Body;
use self::prepared::{Target, event_reader, prepare};
pub use self::provider::{Provider, Secret};
use self::setup::client_error;
pub use self::setup::{SetupError, install_tls};
use self::sse::Frame;
use self::turn::{Pricing, Turn};
use crate::{Catalog, Model, ModelError, Part, Request};
pub use fabro_types::ProviderKind;
use fabro_types::Usage;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Models behind providers that are reached over HTTP: Anthropic, `OpenAI` (Chat Completions and
/// Responses), Gemini, and every server that is compatible with Chat Completions.
///
/// A request goes to the provider that it names, by name or by kind. Where it names none, the
/// model decides: by a provider before its name (`openai/gpt-5`), by its entry in the catalog, by the
/// form of its name (`claude-…`, `gpt-…`, `gemini-…`), and failing all of these it is the first
/// provider. Where the provider that a model belongs to is not configured, the first one that is
/// compatible with Chat Completions, or that has an address of its own, is assumed to serve it, unless the
/// name says the provider (`openai/gpt-5`). A model that is named as a provider is that provider's default. A server of
/// one's own has none but its first model of the catalog, or [`Provider::listed_model`].
///
/// What is sent of a request, beyond messages, tools and `max_tokens`:
///
/// - `reasoning_effort` as the nearest effort that the model takes by the catalog, or as a budget of
///   thinking; none to models that are not in it. A [`Part::Warning`] says what differs. A budget that
///   `max_tokens` has no room for is lowered.
/// - `speed`: for `OpenAI` and compatible servers `fast` is the tier `priority` and `standard` is
///   `default`, and other words are sent unchanged; for Anthropic `fast` is its fast mode, of the models
///   that have a price for it, and `standard` is `standard_only`. Gemini and Mistral have none. A
///   [`Part::Warning`] says when a speed is not sent.
/// - `output_schema` as the schema of the answer, unless the catalog says that the model does not accept
///   one. Anthropic gets it without the keywords it refuses, and not at all where the schema leaves
///   an object open; older models of Gemini, Groq and Cerebras get it only without tools.
/// - To Anthropic, cache marks at the tools, the system's messages and the last two messages that are not the
///   model's.
///
/// Models of `OpenAI` are asked through Responses where the catalog says so: all of them at its own
/// address, at other addresses those that refuse tools in Chat Completions. [`Provider::interface`]
/// decides otherwise.
///
/// What a server refuses although the request can be sent without it (the schema, the effort, the speed,
/// `stream_options`, an answer as a whole, the interface) is left out at once, and in later requests of the process.
///
/// Reasoning goes back to the model that it came from, unchanged and at its place. What is signed or
/// encrypted is left out where the conversation before it has changed since: after a compaction, with
/// other tools or another system prompt. In a request without tools, earlier calls and results are
/// put into words, and a call without a result gets one that says so.
///
/// An answer of Chat Completions that is not a stream is read as it is. A stream that breaks off, ends
/// early or is not valid is [`BrokenStream`](crate::ErrorKind::BrokenStream). An answer of more than 64 MB, or an event of
/// more than 16 MB, is [`TooLarge`](crate::ErrorKind::TooLarge). A line of a stream that is not whole after both timeouts
/// of its provider together is [`Timeout`](crate::ErrorKind::Timeout). Of the body of an error, at most 1 MB is read.
///
/// The JSON of a request is built once for each provider and model it goes to: a retry of [`ask`](crate::ask),
/// which clones the request, sends the same bytes. Only a refusal, which leaves something out of the request,
/// makes it anew.
///
/// Names of tools and ids of calls are sent in a form that the provider accepts, each under one of its
/// own; what has that form already is sent unchanged. The request itself is not changed.
///
/// Messages of errors hold no key and no header, and at most 500 characters of the provider's message.
#[derive(Clone, Debug)]
pub struct Providers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    providers: Vec<Provider>,
    /// In the order of the providers.
    endpoints: Vec<Endpoint>,
    catalog: Arc<Catalog>,
    /// One per provider, in order: servers on this machine use no proxy.
    clients: Vec<reqwest::Client>,
    clock: Clock,
    remembered: Remembered,
}

/// Tells the time, in milliseconds since 1970.
#[derive(Clone)]
struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// The system's clock; the last day that has a date when the clock is set beyond it.
fn now() -> jiff::Timestamp {
    std::time::SystemTime::now().try_into().unwrap_or(jiff::Timestamp::MAX)
}

impl Providers {
    /// A client for these providers, the first one being the default. No request is made yet.
    ///
    /// # Errors
    ///
    /// A provider's settings cannot be used.
    pub fn new(providers: Vec<Provider>, catalog: Catalog) -> Result<Self, SetupError> {
        let clock = || now().as_millisecond();
        Self::with_clock(providers, catalog, clock)
    }

    /// The same with a clock of the caller's, in milliseconds since 1970: prices depend on the day.
    ///
    /// # Errors
    ///
    /// A provider's settings cannot be used.
    pub fn with_clock(
        providers: Vec<Provider>,
        catalog: Catalog,
        clock: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Result<Self, SetupError> {
        install_tls();
        let variable = |name: &str| std::env::var(name).ok();
        let endpoints: Vec<Endpoint> =
            providers.iter().map(Endpoint::new).collect::<Result<_, _>>()?;
        // A redirect would send the key to another server.
        let builder = || {
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")))
        };
        let build = |builder: reqwest::ClientBuilder| {
            builder.build().map_err(|error| client_error(&error, variable))
        };
        let client = build(builder())?;
        let direct = if endpoints.iter().any(Endpoint::is_loopback) {
            build(builder().no_proxy())?
        } else {
            client.clone()
        };
        let client_of = |endpoint: &Endpoint| {
            if endpoint.is_loopback() { direct.clone() } else { client.clone() }
        };
        let clients = endpoints.iter().map(client_of).collect();
        let clock = Clock(Arc::new(clock));
        let remembered = Remembered::default();
        let catalog = Arc::new(catalog);
        let shared = Shared { providers, endpoints, catalog, clients, clock, remembered };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The provider that a request goes to, and the name by which it knows the model.
    ///
    /// # Errors
    ///
    /// Of kind [`Auth`](crate::ErrorKind::Auth) when that provider is not configured, or has no key;
    /// [`UnknownModel`](crate::ErrorKind::UnknownModel) when no model is named, and the provider has no usual one.
    pub fn route(&self, request: &Request) -> Result<(&Provider, String), ModelError> {
        let (index, model) = routing::route(&self.shared.providers, &self.shared.catalog, request)?;
        Ok((&self.shared.providers[index], model))
    }

    /// The provider of a request that names no model, where that provider has no usual one.
    pub fn provider_of_unnamed(&self, request: &Request) -> Option<&Provider> {
        let Shared { providers, catalog, .. } = &*self.shared;
        match routing::target(providers, catalog, request) {
            Ok((index, None)) => providers.get(index),
            _ => None,
        }
    }

    /// The provider that a model belongs to by its name, where another one is asked because that one is not
    /// configured.
    pub fn absent_owner(&self, request: &Request) -> Option<&str> {
        routing::absent_owner(&self.shared.providers, &self.shared.catalog, request)
    }

    /// The address of a configured provider, without a password or a key.
    pub fn address(&self, provider: &str) -> Option<&str> {
        let index = self.shared.providers.iter().position(|it| it.name == provider)?;
        Some(self.shared.endpoints[index].display())
    }

    /// The names of the models that a provider of this name lists (`GET {base_url}/models`), in its order. Takes at
    /// most 15 seconds, and reads at most 4 MiB.
    ///
    /// # Errors
    ///
    /// The provider is not configured, cannot be reached, or does not answer with a list.
    pub async fn list_models(&self, provider: &str) -> Result<Vec<String>, ModelError> {
        let Shared { providers, endpoints, clients, .. } = &*self.shared;
        let index = providers.iter().position(|it| it.name == provider);
        let index = index.ok_or_else(|| routing::not_configured(provider))?;
        list::models(&clients[index], &providers[index], &endpoints[index]).await
    }

    /// The catalog of models.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }
}

impl Model for Providers {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let shared = Arc::clone(&self.shared);
        stream::once(async move {
            match send(&shared, &request).await {
                Ok(answer) => answer.into_parts().boxed(),
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        })
        .flatten()
        .boxed()
    }
}

async fn send(shared: &Shared, request: &Request) -> Result<Answer, ModelError> {
    let (index, model) = routing::route(&shared.providers, &shared.catalog, request)?;
    let provider = &shared.providers[index];
    let endpoint = &shared.endpoints[index];
    let target = Target { index, provider, model: &model, info: shared.catalog.find(&model) };
    let messages = Arc::clone(&request.messages);
    let priced = shared.catalog.same_model(&model).cloned();
    let pricing = Pricing {
        model: priced,
        catalog: Some(Arc::clone(&shared.catalog)),
        sent_ms: (shared.clock.0)(),
        speed: None,
        provider_factor: provider.price_factor(),
    };
    let mut concessions = shared.remembered.get(index, &model, request);
    let concede =
        |field, sent| shared.remembered.concede(field, (index, provider), (&model, request), sent);
    loop {
        let sent = prepare(request, &target, concessions)?;
        let refusal = match http::send(&shared.clients[index], provider, endpoint, &sent).await {
            Ok(body) => {
                let reader = event_reader(sent.wire);
                let mut turn = sent.turn(pricing, messages);
                concessions.warning.into_iter().for_each(|text| turn.warn(text.to_owned()));
                return Ok(Answer { reader, turn, body, has_ended: false });
            }
            Err(refusal) => refusal,
        };
        let field = refusal.field;
        // Each one takes something away, so this ends.
        match field.and_then(|field| concede(field, sent.fields)) {
            Some(conceded) => concessions = conceded,
            None => return Err(refusal.error),
        }
    }
}

/// An answer while it arrives.
struct Answer {
    body: Body,
    reader: Box<dyn EventReader>,
    turn: Turn,
    /// The turn is whole, or has failed.
    has_ended: bool,
}

impl Answer {
    fn into_parts(self) -> impl Stream<Item = Result<Part, ModelError>> + Send {
        stream::unfold(self, |mut answer| async move {
            let part = answer.next().await?;
            Some((part, answer))
        })
    }

    async fn next(&mut self) -> Option<Result<Part, ModelError>> {
        loop {
            if let Some(part) = self.turn.pop_part() {
                return Some(Ok(part));
            }
            if self.has_ended {
                return None;
            }
            if let Some(usage) = self.turn.new_usage() {
                return Some(Ok(Part::Usage(usage)));
            }
            if let Err(error) = self.read().await {
                self.has_ended = true;
                let usage = Usage { failed_requests: 1, ..self.turn.usage() };
                return Some(Err(ModelError { usage: Box::new(usage), ..error }));
            }
        }
    }

    async fn read(&mut self) -> Result<(), ModelError> {
        let frame = self.body.next().await?;
        let progress = match frame {
            Some(Frame::Event(event)) => self.reader.read(&event, &mut self.turn),
            Some(Frame::Whole(body)) => events::json(&body)
                .map_err(EventError::Malformed)
                .and_then(|body| self.reader.read_whole(&body, &mut self.turn))
                .map(|()| Progress::Ended),
            None => self.reader.close(&mut self.turn).map(|()| Progress::Ended),
        };
        let progress =
            progress.map_err(|error| failure::unusable_turn(error, self.body.provider()))?;
        self.has_ended = progress == Progress::Ended;
        Ok(())
    }
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod tests;
