//! `fabro model test`.

use std::fmt::Write as _;

use fabro_run::{ModelTest, ModelTestError, test_model, test_providers};
use fabro_terminal::{Paint, clean, one_line, took};
use fabro_types::Usage;

use crate::cli::ModelTestArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Asks models a question.
pub async fn test(args: ModelTestArgs, global: &Global) -> anyhow::Result<Exit> {
    let settings = global.settings()?;
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
    if args.json {
        output::json(&tried)?;
    } else {
        let paint = global.paint_stdout();
        output::stdout(&tried.iter().map(|tried| text(tried, paint)).collect::<String>())?;
    }
    let failed = tried.iter().any(|tried| tried.error.is_some());
    Ok(if failed { exit::FAILED } else { exit::SUCCEEDED })
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
