//! Testing models with a question.

use std::time::{Duration, Instant};

use fabro_config::{ProviderSettings, Settings};
use fabro_llm::{
    Catalog, ErrorKind, Message, ModelError, ModelInfo, Providers, Reply, Request, complete,
};
use fabro_types::{Usage, nearest};
use serde::Serialize;

use crate::SetupError;
use crate::asked_models::{Unnamed, list_text, only};
use crate::models::client;

const QUESTION: &str = "Which planet do people live on? Answer with one word.";
/// Enough for a word, and for the reasoning before it.
const MAX_TOKENS: u32 = 1_024;
/// How long a person waits for a word; a model that is loaded first may take most of it.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The result of one question.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelTest {
    /// The provider that was asked.
    pub provider: Option<String>,
    /// The model, as the provider calls it.
    pub model: Option<String>,
    /// The answer; `None` after an error.
    pub answer: Option<String>,
    /// From the question to the whole answer, in milliseconds.
    pub latency_ms: u64,
    /// The tokens it used.
    pub usage: Usage,
    /// In US dollars; null when the price is not known.
    pub cost_usd: Option<f64>,
    /// The error, when there is no answer.
    pub error: Option<ModelTestError>,
}

/// Why a question was not answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelTestError {
    /// A stable code: `auth`, `rate_limit`, …, or `settings`.
    pub kind: &'static str,
    /// What happened.
    pub message: String,
    /// How to fix it.
    pub fix: String,
}

/// Asks one model, by its name or `provider/model`.
pub async fn test_model(client: &Providers, name: String) -> ModelTest {
    ask(client, None, Some(name)).await
}

/// Asks every provider at the same time. One that cannot be set up does not stop the others.
pub async fn test_providers(providers: &[ProviderSettings], settings: &Settings) -> Vec<ModelTest> {
    let usual = usual(providers, settings);
    let mut asked = Vec::new();
    for provider in providers {
        let name = provider.name.clone();
        let client = client(std::slice::from_ref(provider), &settings.models);
        let model = usual.as_ref().filter(|(own, _)| *own == name).map(|(_, model)| model.clone());
        asked.push(async move {
            match client {
                Ok(client) => ask(&client, Some(name), model).await,
                Err(error) => ModelTest {
                    provider: Some(name),
                    error: Some(ModelTestError {
                        kind: "settings",
                        message: error.message,
                        fix: error.fix,
                    }),
                    ..ModelTest::default()
                },
            }
        });
    }
    futures_util::future::join_all(asked).await
}

/// The model that the settings choose, and the provider that serves it.
fn usual(providers: &[ProviderSettings], settings: &Settings) -> Option<(String, String)> {
    let client = client(providers, &settings.models).ok()?;
    let model = settings.model.name.clone()?;
    let request = request(settings.model.provider.clone(), Some(model.clone()));
    let (provider, _) = client.route(&request).ok()?;
    Some((provider.name.clone(), model))
}

fn request(provider: Option<String>, model: Option<String>) -> Request {
    let question = Message::user(QUESTION).into();
    let mut request = Request::new(vec![question]);
    request.provider = provider;
    request.model = model;
    request.max_tokens = Some(MAX_TOKENS);
    request
}

async fn ask(client: &Providers, provider: Option<String>, model: Option<String>) -> ModelTest {
    let mut request = request(provider.clone(), model.clone());
    if let Some(name) = client.provider_of_unnamed(&request).map(|it| it.name.clone()) {
        match only(client.list_models(&name).await) {
            Ok(model) => {
                request.provider = Some(name);
                request.model = Some(model);
            }
            Err(reason) => return unnamed(name, reason),
        }
    }
    let (provider, model) = match client.route(&request) {
        Ok((provider, model)) => (Some(provider.name.clone()), Some(model)),
        Err(_) => (provider, model),
    };
    let began = Instant::now();
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, complete(client, request)).await;
    let answer = answer.unwrap_or_else(|_| {
        let message = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
        Err(ModelError::new(ErrorKind::Timeout).with_message(message))
    });
    let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let test = ModelTest { provider, model, latency_ms, ..ModelTest::default() };
    match answer {
        Ok(reply) => answered(test, &reply, client.catalog()),
        Err(error) => {
            let fix = match error.kind {
                ErrorKind::UnknownModel => listed_instead(client, &test).await,
                _ => None,
            };
            let usage = (*error.usage).clone();
            let mut error = test_error(error);
            if let Some(fix) = fix {
                error.fix = fix;
            }
            ModelTest { usage, error: Some(error), ..test }
        }
    }
}

/// What the provider has in place of a model that it does not know; `None` when it does not say.
async fn listed_instead(client: &Providers, test: &ModelTest) -> Option<String> {
    let (provider, model) = (test.provider.as_deref()?, test.model.as_deref()?);
    let listed = tokio::time::timeout(ANSWER_TIMEOUT, client.list_models(provider)).await;
    let models = listed.ok()?.ok().filter(|models| !models.is_empty())?;
    let family = |name: &String| name.split(':').next() == Some(model);
    let near = models.iter().find(|name| family(name)).map(String::as_str);
    let near = near.or_else(|| nearest(model, models.iter().map(String::as_str)));
    let question = near.map(|near| format!("did you mean `{provider}/{near}`? "));
    Some(format!("{}{}", question.unwrap_or_default(), list_text(&models)))
}

/// No model is named, and the provider has no usual one.
fn unnamed(provider: String, reason: Unnamed) -> ModelTest {
    let message = reason.message(&provider);
    let error = Some(ModelTestError { kind: "settings", message, fix: reason.fix });
    ModelTest { provider: Some(provider), error, ..ModelTest::default() }
}

/// The model that answers where no model is named: `provider/model`.
///
/// # Errors
///
/// None would: the message of what is missing, and what to do. No server is asked: somebody else's settings may name
/// one.
pub fn usual_model(
    providers: &[ProviderSettings],
    settings: &Settings,
) -> Result<String, SetupError> {
    let client = client(providers, &settings.models)?;
    let mut request = Request::new(Vec::new());
    request.provider.clone_from(&settings.model.provider);
    request.model.clone_from(&settings.model.name);
    if let Some(provider) = client.provider_of_unnamed(&request) {
        let name = &provider.name;
        return Ok(format!("the only one that {name} lists, if it lists one"));
    }
    match client.route(&request) {
        Ok((provider, model)) => Ok(format!("{}/{model}", provider.name)),
        Err(error) => {
            Err(SetupError::new(error.message, "configure the provider, or choose another model"))
        }
    }
}

fn answered(test: ModelTest, reply: &Reply, catalog: &Catalog) -> ModelTest {
    let known = test.model.as_deref().and_then(|model| catalog.same_model(model));
    let has_price = known.is_some_and(ModelInfo::has_price);
    ModelTest {
        answer: Some(reply.text().trim().to_owned()),
        cost_usd: (has_price || reply.usage.cost_usd > 0.0).then_some(reply.usage.cost_usd),
        usage: reply.usage.clone(),
        ..test
    }
}

fn test_error(error: ModelError) -> ModelTestError {
    let fix = match error.kind {
        ErrorKind::RateLimit | ErrorKind::Overloaded => match error.retry_after {
            Some(wait) => {
                format!("try again in {:.1}s", wait.as_secs_f64())
            }
            None => "try again later".to_owned(),
        },
        ErrorKind::Timeout => {
            "try again; if it fails again, check base_url, and whether the model is being loaded"
                .to_owned()
        }
        ErrorKind::Unreachable => "check base_url of the provider, and whether it is up".to_owned(),
        ErrorKind::Auth => {
            "set the key in the environment, or name its variable in api_key_env of the provider"
                .to_owned()
        }
        ErrorKind::Quota => "raise the quota at the provider".to_owned(),
        ErrorKind::BrokenStream | ErrorKind::UnusableAnswer => {
            "try again; if it fails again, check that the provider's kind matches its protocol"
                .to_owned()
        }
        _ => "check the model's name, and the kind and base_url of the provider".to_owned(),
    };
    ModelTestError { kind: error.kind.as_str(), message: error.message, fix }
}
