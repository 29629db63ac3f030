//! `fabro cost`.

use std::collections::BTreeSet;

use clap_complete::ArgValueCandidates;
use fabro_engine::read_all;
use fabro_inspect::{CostReport, CostSum, Kind, Spent, StageCost};
use fabro_store::Runs as _;
use fabro_terminal::{Align, Paint, Table, clean, cut, tokens};
use fabro_types::RunId;

use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, find, settings, stdout_width};
use crate::output;

/// Show what runs spent on models
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro cost\n  fabro cost latest\n  fabro cost 01K3 01K4 --json | jq .total.cost_usd\n\nSub-workflows are included. A price that is not known is shown as `unknown` and is not in the sums."
)]
pub struct CostArgs {
    /// The runs: ids, the beginnings of ids, or `latest`; several are added up
    #[arg(value_name = "RUN", default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub runs: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Adds up what runs spent.
pub async fn cost(args: &CostArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.store_to_read()?;
    let is_free = free_models()?;
    let mut members: Vec<(RunId, Vec<RunId>)> = Vec::new();
    for text in &args.runs {
        let run = find(&store, text).await?;
        if members.iter().all(|(other, _)| *other != run) {
            members.push((run, store.family(run).await?));
        }
    }
    // A sub-workflow that is named besides its run counts once.
    let inside: BTreeSet<RunId> = members
        .iter()
        .flat_map(|(run, family)| family.iter().filter(move |member| *member != run))
        .copied()
        .collect();
    members.retain(|(run, _)| !inside.contains(run));
    let mut sum = CostSum::default();
    for (run, family) in members {
        let mut logs = Vec::new();
        for member in family {
            logs.push(read_all(&store, member).await?);
        }
        sum.add(run, &logs, &is_free);
    }
    let report = sum.finish();
    output::report(args.json, &report, || text(&report, global.paint_stdout(), stdout_width()))?;
    Ok(Exit::SUCCEEDED)
}

/// Whether a model costs nothing.
pub(super) fn free_models() -> anyhow::Result<impl Fn(&str) -> bool + Sync> {
    let catalog = fabro_run::catalog(&settings()?.models);
    Ok(move |model: &str| {
        let known = catalog.same_model(model);
        known.is_some_and(|it| it.cost.input_cost == Some(0.0) && it.cost.output_cost == Some(0.0))
    })
}

fn text(report: &CostReport, paint: Paint, width: usize) -> String {
    let total = &report.total;
    if total.turns == 0 && total.failed_requests == 0 {
        return "no model was called\n".to_owned();
    }
    let mut text = format!("{}  {}", paint.bold(&price(total)), counted(total.turns, "turn"));
    if total.failed_requests > 0 {
        text.push_str(", ");
        text.push_str(&counted(total.failed_requests, "failed request"));
    }
    text.push('\n');
    if total.unpriced_requests > 0 {
        let requests = counted(total.unpriced_requests, "request");
        let names = report.models.iter().filter(|it| it.spent.unpriced_requests > 0);
        let names: Vec<_> = names.map(|it| model_name(it.model.as_ref())).collect();
        let note = format!(
            "{requests} without a known price: set input_cost and output_cost in [models.NAME] for {}\n",
            names.join(", ")
        );
        text.push_str(&paint.odd(&note));
    }
    text.push('\n');
    text.push_str(&kinds(total, paint));
    if report.runs.len() > 1 {
        let rows = report.runs.iter().map(|it| (it.run.clone(), &it.spent));
        text.push_str(&spent("run", rows, paint, width));
    }
    let rows = report.models.iter().map(|it| (model_name(it.model.as_ref()), &it.spent));
    text.push_str(&spent("model", rows, paint, width));
    let has_several = report.stages.iter().any(|it| it.run != report.stages[0].run);
    let name = |it: &StageCost| {
        let StageCost { run, stage, elements, .. } = it;
        let end = run.get(run.len().saturating_sub(6)..).unwrap_or(run);
        // `search@1` in the sub-workflow of element 3 is shown as `search[3]@1`.
        let name = match stage.rsplit_once('@') {
            Some((node, visit)) => format!("{node}{elements}@{visit}"),
            None => stage.clone(),
        };
        if has_several { format!("{end} {}", clean(&name)) } else { clean(&name).into_owned() }
    };
    let rows = report.stages.iter().map(|it| (name(it), &it.spent));
    text.push_str(&spent("stage", rows, paint, width));
    text
}

fn model_name(model: Option<&String>) -> String {
    model.map_or_else(|| "(not named)".to_owned(), |name| clean(name).into_owned())
}

/// `$0.0123`, `unknown`, or both.
fn price(spent: &Spent) -> String {
    match spent.cost_usd {
        Some(cost) if spent.unpriced_requests > 0 => format!("{} + unknown", dollars(cost)),
        Some(cost) => dollars(cost),
        None => "unknown".to_owned(),
    }
}

fn dollars(cost: f64) -> String {
    format!("${cost:.4}")
}

fn kinds(total: &Spent, paint: Paint) -> String {
    let mut table =
        Table::new(&[("kind", Align::Left), ("tokens", Align::Right), ("cost", Align::Right)]);
    let kinds = &total.kinds;
    let named = [
        ("input", &kinds.input),
        ("cached read", &kinds.cached),
        ("cache write", &kinds.cache_write),
        ("output", &kinds.output),
        ("reasoning", &kinds.reasoning),
    ];
    for (name, Kind { tokens, cost_usd }) in named.into_iter().filter(|(_, it)| it.tokens > 0) {
        let cost = cost_usd.map_or_else(|| "unknown".to_owned(), dollars);
        table.row([name.to_owned(), tokens.to_string(), cost]);
    }
    if total.other_usd > 0.0 {
        table.row(["not split".to_owned(), String::new(), dollars(total.other_usd)]);
    }
    table.render(paint, |_, text| text.to_owned())
}

/// A row for each run, model or stage. Where the table does not fit into the terminal, columns that are mostly
/// zeros are left out: a wrapped table cannot be read.
fn spent<'s>(
    title: &'static str,
    rows: impl Iterator<Item = (String, &'s Spent)>,
    paint: Paint,
    width: usize,
) -> String {
    let rows: Vec<_> = rows.collect();
    let all = spent_table(title, &rows, true);
    let plain = all.render(Paint::new(false), |_, text| text.to_owned());
    let fits = plain.lines().all(|line| cut(line, width) == line);
    let table = if fits { all } else { spent_table(title, &rows, false) };
    format!("\n{}", table.render(paint, |_, text| text.to_owned()))
}

fn spent_table(title: &'static str, rows: &[(String, &Spent)], is_full: bool) -> Table {
    // Whether a narrow table has the column too.
    const COLUMNS: [(&str, bool); 8] = [
        ("turns", true),
        ("failed", false),
        ("in", true),
        ("cached", false),
        ("written", false),
        ("out", true),
        ("reasoning", false),
        ("cost", true),
    ];
    let is_shown = |is_narrow: bool| is_full || is_narrow;
    let shown = COLUMNS.iter().filter(|(_, is_narrow)| is_shown(*is_narrow));
    let mut columns = vec![(title, Align::Left)];
    columns.extend(shown.map(|(name, _)| (*name, Align::Right)));
    let mut table = Table::new(&columns);
    for (name, spent) in rows {
        let kinds = &spent.kinds;
        let cells = [
            spent.turns.to_string(),
            spent.failed_requests.to_string(),
            tokens(kinds.input.tokens),
            tokens(kinds.cached.tokens),
            tokens(kinds.cache_write.tokens),
            tokens(kinds.output.tokens),
            tokens(kinds.reasoning.tokens),
            price(spent),
        ];
        let shown = COLUMNS.iter().zip(cells).filter(|((_, is_narrow), _)| is_shown(*is_narrow));
        table.row(std::iter::once(name.clone()).chain(shown.map(|(_, cell)| cell)));
    }
    table
}

fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_does_not_fit_has_fewer_columns() {
        let spent_by = Spent { cost_usd: Some(0.25), turns: 2, ..Spent::default() };
        let table = |width| {
            let rows = [("a-model-with-a-long-name".to_owned(), &spent_by)];
            spent("model", rows.into_iter(), Paint::new(false), width)
        };
        insta::assert_snapshot!(table(usize::MAX), @r"

        model                     turns  failed  in  cached  written  out  reasoning     cost
        a-model-with-a-long-name      2       0   0       0        0    0          0  $0.2500
        ");
        insta::assert_snapshot!(table(60), @r"

        model                     turns  in  out     cost
        a-model-with-a-long-name      2   0    0  $0.2500
        ");
    }
}
