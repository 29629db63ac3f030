//! `fabro model test`.

use std::fmt::Write as _;
use std::time::Instant;

use fabro_config::{ProviderSettings, Settings};
use fabro_llm::{
    Catalog, ErrorKind, Message, ModelError, Origin, Providers, Reply, Request, complete,
};
use fabro_terminal::{Paint, clean, one_line, took};
use fabro_types::Usage;
use serde::Serialize;

use crate::cli::ModelTestArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::wiring;

const QUESTION: &str = "Which planet do people live on? Answer with one word.";
/// Enough for a word, and for a model that thinks before it says it.
const MAX_TOKENS: u32 = 1_024;

/// How a question went.
#[derive(Default, Serialize)]
struct Tried {
    provider: Option<String>,
    model: Option<String>,
    answer: Option<String>,
    latency_ms: u64,
    usage: Usage,
    /// In US dollars; null when the price is not known.
    cost_usd: Option<f64>,
    error: Option<Mishap>,
}

#[derive(Serialize)]
struct Mishap {
    kind: &'static str,
    message: String,
    fix: String,
}

/// Asks models a question.
pub async fn test(args: ModelTestArgs, global: &Global) -> anyhow::Result<Exit> {
    let settings = global.settings()?;
    let providers = wiring::providers(&settings);
    if providers.is_empty() {
        return Err(error::failed(
            "no provider is configured",
            "set a key such as ANTHROPIC_API_KEY, a base URL such as OPENAI_BASE_URL, or name one in .fabro/config.toml",
        ));
    }
    let tried = match &args.name {
        Some(name) => {
            let client = wiring::client(&providers, &settings.models)?;
            vec![ask(&client, None, Some(name.clone())).await]
        }
        None => ask_all(&providers, &settings).await?,
    };
    if args.json {
        output::json(&tried)?;
    } else {
        let paint = global.paint_stdout();
        output::stdout(&tried.iter().map(|tried| text(tried, paint)).collect::<String>())?;
    }
    let failed = tried.iter().any(|tried| tried.error.is_some());
    Ok(if failed { exit::FAILED } else { exit::SUCCEEDED })
}

/// Asks each provider, all at the same time. One that cannot be set up does not stop the others.
async fn ask_all(
    providers: &[ProviderSettings],
    settings: &Settings,
) -> anyhow::Result<Vec<Tried>> {
    let usual = usual(providers, settings);
    let mut asked = Vec::new();
    for provider in providers {
        let name = provider.name.clone();
        let client = wiring::client(std::slice::from_ref(provider), &settings.models);
        let model = usual.as_ref().filter(|(own, _)| *own == name).map(|(_, model)| model.clone());
        asked.push(tokio::spawn(async move {
            match client {
                Ok(client) => ask(&client, Some(name), model).await,
                Err(error) => Tried {
                    provider: Some(name),
                    error: Some(Mishap {
                        kind: "settings",
                        message: error.to_string(),
                        fix: error::next(&error).unwrap_or_default().to_owned(),
                    }),
                    ..Tried::default()
                },
            }
        }));
    }
    let mut tried = Vec::new();
    for asked in asked {
        tried.push(asked.await?);
    }
    Ok(tried)
}

/// The model that the settings choose, and the provider that serves it.
fn usual(providers: &[ProviderSettings], settings: &Settings) -> Option<(String, String)> {
    let client = wiring::client(providers, &settings.models).ok()?;
    let model = settings.model.name.clone()?;
    let request = request(settings.model.provider.clone(), Some(model.clone()));
    let (provider, _) = client.route(&request).ok()?;
    Some((provider.name.clone(), model))
}

fn request(provider: Option<String>, model: Option<String>) -> Request {
    let question = Message::user(QUESTION).into();
    let mut request = Request::new(Origin::new("model test"), vec![question]);
    (request.provider, request.model) = (provider, model);
    request.max_tokens = Some(MAX_TOKENS);
    request
}

async fn ask(client: &Providers, provider: Option<String>, model: Option<String>) -> Tried {
    let request = request(provider.clone(), model.clone());
    let (provider, model) = match client.route(&request) {
        Ok((provider, model)) => (Some(provider.name.clone()), Some(model)),
        Err(_) => (provider, model),
    };
    let began = Instant::now();
    let answer = complete(client, request).await;
    let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let tried = Tried { provider, model, latency_ms, ..Tried::default() };
    match answer {
        Ok(reply) => answered(tried, &reply, client.catalog()),
        Err(error) => Tried { usage: error.usage.clone(), error: Some(mishap(error)), ..tried },
    }
}

fn answered(tried: Tried, reply: &Reply, catalog: &Catalog) -> Tried {
    let known = tried.model.as_deref().and_then(|model| catalog.find(model));
    let has_price = known.is_some_and(|model| model.input_cost.is_some());
    Tried {
        answer: Some(reply.text().trim().to_owned()),
        cost_usd: (has_price || reply.usage.cost_usd > 0.0).then_some(reply.usage.cost_usd),
        usage: reply.usage.clone(),
        ..tried
    }
}

fn mishap(error: ModelError) -> Mishap {
    let fix = match error.kind {
        ErrorKind::RateLimit | ErrorKind::Overloaded => match error.retry_after {
            Some(wait) => {
                format!("try again in {}", took(wait.as_millis().try_into().unwrap_or(u64::MAX)))
            }
            None => "try again later".to_owned(),
        },
        ErrorKind::Timeout => "try again, or raise request_timeout of the provider".to_owned(),
        ErrorKind::Unreachable => "check base_url of the provider, and whether it is up".to_owned(),
        ErrorKind::Auth => {
            "set the key in the environment, or name its variable in api_key_env of the provider"
                .to_owned()
        }
        ErrorKind::Quota => "raise the quota at the provider".to_owned(),
        ErrorKind::BrokenStream => {
            "try again; if it stays so, check that the provider's kind fits what it speaks"
                .to_owned()
        }
        _ => "check the model's name, and the kind and base_url of the provider".to_owned(),
    };
    Mishap { kind: error.kind.as_str(), message: error.message, fix }
}

fn text(tried: &Tried, paint: Paint) -> String {
    let words = [tried.provider.as_deref(), tried.model.as_deref()];
    let names = words.into_iter().flatten().map(clean).collect::<Vec<_>>().join("/");
    if let Some(Mishap { kind, message, fix }) = &tried.error {
        return format!(
            "{} {}  {kind}: {}\n    {} {}\n",
            paint.bad("✗"),
            paint.bold(&names),
            clean(message),
            paint.hint("help:"),
            clean(fix),
        );
    }
    let Usage { input_tokens, output_tokens, .. } = tried.usage;
    let mut text = format!(
        "{} {}  \"{}\"  {}, {input_tokens} tokens in, {output_tokens} out",
        paint.good("✓"),
        paint.bold(&names),
        one_line(tried.answer.as_deref().unwrap_or_default(), 80),
        took(tried.latency_ms),
    );
    if let Some(cost) = tried.cost_usd {
        let _ = write!(text, ", ${cost:.6}");
    } else {
        text.push_str(", price not known");
    }
    text.push('\n');
    text
}
