//! `fabro model`.

use std::fmt::Write as _;

use fabro_config::ProviderSettings;
use fabro_llm::ModelInfo;
use fabro_terminal::{Align, Paint, Table, clean};
use serde::Serialize;

use crate::commands::model_test::{ModelTestArgs, test};
use crate::exit::Exit;
use crate::global::{Global, settings};
use crate::output;

/// The commands for models.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ModelCommand {
    List(ModelListArgs),
    Test(ModelTestArgs),
}

/// List the known models with their context windows and prices
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro model list\n  fabro model list --json | jq '.[] | select(.served_by)'\n\nOther models work too. `[models.NAME]` in config.toml describes one."
)]
pub struct ModelListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A model as it is listed.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    model: &'a ModelInfo,
    /// The provider that would serve it; null when none is configured that does.
    served_by: Option<&'a str>,
}

/// Lists or tests models.
pub async fn model(command: ModelCommand, global: &Global) -> anyhow::Result<Exit> {
    match command {
        ModelCommand::List(args) => list(&args, global),
        ModelCommand::Test(args) => test(args, global).await,
    }
}

fn list(args: &ModelListArgs, global: &Global) -> anyhow::Result<Exit> {
    let settings = settings()?;
    let providers = fabro_run::providers(&settings);
    let catalog = fabro_run::catalog(&settings.models);
    let rows: Vec<Row<'_>> = catalog
        .iter()
        .map(|model| Row { model, served_by: served_by(model, &providers) })
        .collect();
    let paint = global.paint_stdout();
    let usual = settings.model.name.as_deref();
    output::report(args.json, &rows, || {
        table(&rows, paint) + &configured(&providers, usual, paint)
    })?;
    Ok(Exit::SUCCEEDED)
}

fn served_by<'p>(model: &ModelInfo, providers: &'p [ProviderSettings]) -> Option<&'p str> {
    let wanted = model.provider.as_deref()?;
    let by_name = providers.iter().find(|provider| provider.name == wanted);
    let of_kind = || providers.iter().find(|provider| provider.kind.as_str() == wanted);
    by_name.or_else(of_kind).map(|provider| provider.name.as_str())
}

fn table(rows: &[Row<'_>], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("model", Align::Left),
        ("provider", Align::Left),
        ("window", Align::Right),
        ("answer", Align::Right),
        ("$ in", Align::Right),
        ("$ cached", Align::Right),
        ("$ out", Align::Right),
        ("ready", Align::Left),
        ("also", Align::Left),
    ]);
    let count = |count: Option<u64>| count.map(|it| it.to_string()).unwrap_or_default();
    let price = |price: Option<f64>| price.map(|it| it.to_string()).unwrap_or_default();
    // What can be used now comes first.
    let (ready, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.served_by.is_some());
    for Row { model, served_by } in ready.into_iter().chain(others) {
        table.row([
            model.name.clone(),
            model.provider.clone().unwrap_or_default(),
            count(model.context_window),
            count(model.max_output_tokens),
            price(model.cost.input_cost),
            price(model.cost.cached_cost),
            price(model.cost.output_cost),
            if served_by.is_some() { "yes" } else { "" }.to_owned(),
            model.aliases.join(" "),
        ]);
    }
    table.render(paint, |column, text| match column {
        7 => paint.good(text),
        8 => paint.dim(text),
        _ => text.to_owned(),
    })
}

/// A provider: name, kind and URL, and nothing secret.
pub fn provider_text(provider: &ProviderSettings, paint: Paint) -> String {
    let url = provider.base_url.as_deref().map(|url| format!(" at {}", clean(url)));
    let name = paint.bold(&clean(&provider.name));
    format!("{name} ({}){}", provider.kind.as_str(), url.unwrap_or_default())
}

/// The configured providers, and the model of the settings.
fn configured(providers: &[ProviderSettings], usual: Option<&str>, paint: Paint) -> String {
    let mut text =
        paint.dim("\nwindow and answer in tokens, prices in US dollars a million tokens\n");
    for provider in providers {
        let _ = writeln!(text, "provider {}", provider_text(provider, paint));
    }
    if let Some(usual) = usual {
        let _ = writeln!(text, "model {}, for stages that name none", paint.bold(&clean(usual)));
    }
    if providers.is_empty() {
        text.push_str(
            "no provider is configured: set a key such as ANTHROPIC_API_KEY, or name one in \
             .fabro/config.toml\n",
        );
    }
    text
}
