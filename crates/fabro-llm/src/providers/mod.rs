//! Real providers, over HTTP.

mod address;
mod anthropic;
mod body;
mod calls;
mod failure;
mod frames;
mod incoming;
mod names;
mod outgoing;
mod provider;
mod route;
mod schema;
mod whole;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use genai::Client;

use self::address::Address;
use self::frames::Frames;
use self::incoming::{Asked, Incoming};
use self::provider::chats;
pub use self::provider::{Provider, Secret};
use self::whole::Whole;
use crate::{Catalog, ErrorKind, Model, ModelError, Part, Request};
pub use fabro_types::ProviderKind;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Models behind providers that are reached over HTTP: Anthropic, `OpenAI` (Chat Completions and
/// Responses), Gemini, and everything that speaks Chat Completions.
///
/// A request goes to the provider that it names, by name or by kind. Where it names none, the
/// model decides: by a provider before its name (`openai/gpt-5`), by what the catalog says, by the
/// shape of its name (`claude-…`, `gpt-…`, `gemini-…`), and failing all of these it is the first
/// provider. Where the provider that a model belongs to is not configured, the first one that speaks
/// Chat Completions for others, or that has an address of its own, is taken to serve it. A model
/// that is named as a provider is that provider's default.
///
/// What each provider is told of a request, beyond messages, tools and `max_tokens`:
///
/// - `reasoning_effort` as effort or as a budget of thinking, unless the catalog says that the model
///   does not think. A budget that `max_tokens` has no room for is lowered.
/// - `speed`: to `OpenAI` and its like `fast` is the tier `priority` and `standard` is `default`; to
///   Anthropic `fast` is its fast mode and `standard` is `standard_only`; other words are sent as
///   tiers as they are. Gemini has none.
/// - `output_schema` as the schema of the answer, unless the catalog says that the model has no such
///   thing. Anthropic gets it without the keywords it refuses, and not at all where the schema leaves
///   an object open; Gemini gets it only without tools.
/// - To Anthropic, that it may cache up to the tools, the system's messages and the last message.
///
/// Thoughts go back to the kind of provider that had them. Signed and sealed ones always do; plain
/// ones only within the turn that calls tools.
///
/// A server of Chat Completions that answers without a stream is asked once more, and from then on, for
/// no stream.
///
/// A stream that breaks off, ends early or is not understood is [`ErrorKind::BrokenStream`]; one of
/// more than 64 MB is [`ErrorKind::TooLarge`]. Bodies of errors, answers without a stream and single
/// events are read whole, however large they are, and a single event in a time that grows with the
/// square of its size. What is not whole after both timeouts of its provider together is
/// [`ErrorKind::Timeout`].
///
/// Names of tools and ids of calls are sent in a form that the provider takes, each under one of its
/// own; what has that form already is sent as it is. The request itself is not changed.
///
/// Messages of errors hold no key and no header, and at most 500 characters of what the provider
/// says.
///
/// This client logs failures and more by `tracing`, with whole bodies: a subscriber should switch
/// its target `genai` off.
#[derive(Clone, Debug)]
pub struct Providers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    providers: Vec<Provider>,
    /// In the order of the providers.
    addresses: Vec<Address>,
    catalog: Catalog,
    client: Client,
    /// Which of the providers do not stream.
    whole: Vec<AtomicBool>,
}

/// A provider that cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Its base URL is none.
    #[error("the base URL of provider `{provider}` is no URL of http or https ({reason}): mend it")]
    BaseUrl {
        /// The provider.
        provider: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It has no base URL, and there is no usual one.
    #[error(
        "provider `{provider}` has no base URL: say where it is, as in `http://127.0.0.1:8080/v1`"
    )]
    NoBaseUrl {
        /// The provider.
        provider: String,
    },
    /// A header that HTTP does not allow.
    #[error(
        "header `{header}` of provider `{provider}` has a name or a value that HTTP does not allow"
    )]
    Header {
        /// The provider.
        provider: String,
        /// The header.
        header: String,
    },
    /// A key that cannot be sent.
    #[error("the key of provider `{provider}` has characters that no key has: set it again")]
    Key {
        /// The provider.
        provider: String,
    },
    /// The HTTP client cannot be made, whatever the settings of providers: nearly always for want of
    /// certificates.
    #[error("the HTTP client cannot be set up: {reason}: {fix}")]
    Client {
        /// Why not.
        reason: String,
        /// What to do.
        fix: String,
    },
}

impl Providers {
    /// A client for these providers, the first one being the default. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// A provider's settings cannot be used.
    pub fn new(providers: Vec<Provider>, catalog: Catalog) -> Result<Self, SetupError> {
        install_tls();
        let variable = |name: &str| std::env::var(name).ok();
        let addresses = providers.iter().map(Address::new).collect::<Result<_, _>>()?;
        // A redirect would carry the key to another place.
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| unusable(&error, variable))?;
        let client = Client::builder().with_reqwest(http).build();
        let client = client.map_err(|error| unusable(&error, variable))?;
        let whole = providers.iter().map(|_| AtomicBool::default()).collect();
        Ok(Self { shared: Arc::new(Shared { providers, addresses, catalog, client, whole }) })
    }

    /// The provider that a request goes to, and the name by which it knows the model.
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Auth`] when that provider is not configured, or has no key.
    pub fn route(&self, request: &Request) -> Result<(&Provider, String), ModelError> {
        let (index, model) = route::route(&self.shared.providers, &self.shared.catalog, request)?;
        Ok((&self.shared.providers[index], model))
    }

    /// What is known of models.
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }
}

impl Model for Providers {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let shared = Arc::clone(&self.shared);
        stream::once(async move {
            match start(&shared, request).await {
                Ok(incoming) => incoming.into_stream().boxed(),
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        })
        .flatten()
        .boxed()
    }
}

async fn start(shared: &Arc<Shared>, request: Request) -> Result<Incoming, ModelError> {
    let (index, model) = route::route(&shared.providers, &shared.catalog, &request)?;
    let (provider, address) = (&shared.providers[index], &shared.addresses[index]);
    let info = shared.catalog.find(&model).cloned();
    let frames = Arc::new(Frames::new(provider.kind));
    let messages = request.messages.clone();
    let asked = |info| {
        let (provider, address) = (provider.clone(), address.clone());
        Asked { provider, address, model: model.clone(), info, messages }
    };
    let whole = chats(provider.kind).then(|| {
        let (shared, model, request) = (Arc::clone(shared), model.clone(), request.clone());
        Whole { shared, index, model, request }
    });
    if whole.as_ref().is_some_and(Whole::is_usual) {
        return Ok(Incoming::new(asked(info), None, frames, whole));
    }
    let call = outgoing::call(provider, address, &model, info.as_ref(), &request)?;
    let options = call.options.with_raw_frame_sink_arc(frames.clone());
    let sent = shared.client.exec_chat_stream(call.target, call.messages, Some(&options)).await;
    let response = sent.map_err(|error| failure::failure(&error, provider, address))?;
    Ok(Incoming::new(asked(info), Some(response.stream), frames, whole))
}

/// Makes ring the source of all TLS of this process, unless another one is installed already. Done
/// by [`Providers::new`]; others who build HTTP clients call it first.
pub fn install_tls() {
    // An error says that one is installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Why there is no HTTP client; variables may say where certificates are.
fn unusable(error: &dyn std::error::Error, env: impl Fn(&str) -> Option<String>) -> SetupError {
    let set = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name, env(name)));
    let set = set.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    let set: Vec<_> = set.collect();
    let reason = failure::deepest(error);
    let fix = if set.is_empty() {
        "check the certificates of this system".to_owned()
    } else {
        format!("mend or unset {}", set.join(" and "))
    };
    SetupError::Client { reason, fix }
}

fn invalid(message: String) -> ModelError {
    let error = ModelError::new(ErrorKind::InvalidRequest).with_message(message);
    // No request was made.
    ModelError { usage: fabro_types::Usage::default(), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_are_not_there_are_told_with_their_variable() {
        let cause = std::io::Error::other("no certificates");
        let told = |set: &'static str| {
            let env = move |name: &str| (name == set).then(|| "/gone.pem".to_owned());
            unusable(&cause, env).to_string()
        };
        assert_eq!(
            told("SSL_CERT_FILE"),
            "the HTTP client cannot be set up: no certificates: mend or unset SSL_CERT_FILE=/gone.pem"
        );
        assert_eq!(
            told("HOME"),
            "the HTTP client cannot be set up: no certificates: check the certificates of this system"
        );
    }
}
