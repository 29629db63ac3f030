//! `fabro model test`.

use std::fmt::Write as _;

use clap_complete::ArgValueCandidates;
use fabro_run::{ModelTest, ModelTestError, test_model, test_providers};
use fabro_terminal::{Paint, clean, one_line, took};
use fabro_types::Usage;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, settings};
use crate::output;

/// Send a test question to models
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro model test\n  fabro model test claude-haiku-4-5\n  fabro model test local/llama --json | jq '.[].latency_ms'\n\nExits with 1 if one does not answer. The provider charges for the answers."
)]
pub struct ModelTestArgs {
    /// A model, PROVIDER/MODEL, or a provider [default: every provider that is configured]
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::models))]
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Asks models a question.
pub async fn test(args: ModelTestArgs, global: &Global) -> anyhow::Result<Exit> {
    let settings = settings()?;
    let providers = fabro_run::providers(&settings);
    if providers.is_empty() {
        return Err(error::failed(
            "no provider is configured",
            "set a key such as ANTHROPIC_API_KEY, a base URL such as OPENAI_BASE_URL, or name one in .fabro/config.toml",
        ));
    }
    let tried = match &args.name {
        Some(name) => {
            let client = fabro_run::client(&providers, &settings.models)?;
            vec![test_model(&client, name.clone()).await]
        }
        None => test_providers(&providers, &settings).await,
    };
    let paint = global.paint_stdout();
    output::report(args.json, &tried, || tried.iter().map(|tried| text(tried, paint)).collect())?;
    let failed = tried.iter().any(|tried| tried.error.is_some());
    Ok(if failed { Exit::FAILED } else { Exit::SUCCEEDED })
}

fn text(tried: &ModelTest, paint: Paint) -> String {
    let words = [tried.provider.as_deref(), tried.model.as_deref()];
    let names = words.into_iter().flatten().map(clean).collect::<Vec<_>>().join("/");
    if let Some(ModelTestError { kind, message, fix }) = &tried.error {
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
