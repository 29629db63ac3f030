//! What a run spent on models.

use askama::Template;
use fabro_inspect::{CostReport, Kind, Spent};
use fabro_types::Usage;

use crate::Links;
use crate::texts::{counted, dollars, render};

/// The most stages in the table of costs.
const MAX_STAGES: usize = 50;

struct Row {
    name: String,
    link: Option<String>,
    cost: String,
    /// Its part of the dearest, in hundredths.
    part: String,
    turns: u32,
    input: u64,
    cached: u64,
    output: u64,
}

struct TokenKind {
    name: &'static str,
    tokens: u64,
    cost: String,
}

#[derive(Template)]
#[template(path = "cost.html")]
struct Cost {
    total: String,
    turns: String,
    /// The requests that failed, and those without a price, when there are some.
    failed: Option<String>,
    unpriced: Option<String>,
    kinds: Vec<TokenKind>,
    tables: Vec<(&'static str, Vec<Row>)>,
    left_out: usize,
}

/// `$0.0123`, `unknown`, or both.
pub(crate) fn price(spent: &Spent) -> String {
    match spent.cost_usd {
        Some(cost) if spent.unpriced_requests > 0 => format!("{} + unknown", dollars(cost)),
        Some(cost) => dollars(cost),
        None => "unknown".to_owned(),
    }
}

/// The same of a stage or a run.
pub(crate) fn cost_of(usage: &Usage) -> String {
    match usage.unpriced_requests {
        0 => dollars(usage.cost_usd),
        _ if usage.cost_usd > 0.0 => format!("{} + unknown", dollars(usage.cost_usd)),
        _ => "unknown".to_owned(),
    }
}

/// What a run spent: by kind of token, by model, by stage (the dearest first). `run` is the id of the run:
/// stages of others are sub-workflows'.
pub fn cost(report: &CostReport, run: &str, links: &Links) -> String {
    let total = &report.total;
    let kind = |name, kind: &Kind| TokenKind {
        name,
        tokens: kind.tokens,
        cost: kind.cost_usd.map_or_else(|| "unknown".to_owned(), dollars),
    };
    let kinds = [
        kind("input", &total.kinds.input),
        kind("cached read", &total.kinds.cached),
        kind("cache write", &total.kinds.cache_write),
        kind("output", &total.kinds.output),
        kind("reasoning", &total.kinds.reasoning),
    ];
    let named = |model: &Option<String>| model.clone().unwrap_or_else(|| "(not named)".to_owned());
    let models: Vec<_> =
        report.models.iter().map(|it| (named(&it.model), None, &it.spent)).collect();
    let mut stages: Vec<_> = report
        .stages
        .iter()
        .map(|it| {
            let is_own = it.run == run;
            let end = it.run.get(it.run.len().saturating_sub(6)..).unwrap_or(&it.run);
            let name = if is_own { it.stage.clone() } else { format!("{end} {}", it.stage) };
            (name, is_own.then(|| links.stage(&it.stage)), &it.spent)
        })
        .collect();
    let worth = |spent: &Spent| {
        (spent.cost_usd.unwrap_or(0.0), spent.kinds.input.tokens + spent.kinds.output.tokens)
    };
    stages.sort_by(|(.., one), (.., other)| {
        worth(other).partial_cmp(&worth(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let left_out = stages.len().saturating_sub(MAX_STAGES);
    let count = |number: u32, noun| counted(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let some = |number: u32, noun| (number > 0).then(|| count(number, noun));
    stages.truncate(MAX_STAGES);
    render(&Cost {
        total: price(total),
        turns: count(total.turns, "turn"),
        failed: some(total.failed_requests, "failed request"),
        unpriced: some(total.unpriced_requests, "request"),
        kinds: kinds.into_iter().filter(|kind| kind.tokens > 0).collect(),
        tables: vec![("model", rows(models)), ("stage", rows(stages))],
        left_out,
    })
}

fn rows(list: Vec<(String, Option<String>, &Spent)>) -> Vec<Row> {
    let cost = |spent: &Spent| spent.cost_usd.unwrap_or(0.0);
    let dearest = list.iter().map(|(.., spent)| cost(spent)).fold(0.0, f64::max);
    let row = |(name, link, spent): (String, Option<String>, &Spent)| {
        let part = if dearest > 0.0 { cost(spent) / dearest * 100.0 } else { 0.0 };
        Row {
            name,
            link,
            cost: price(spent),
            part: format!("{part:.0}"),
            turns: spent.turns,
            input: spent.kinds.input.tokens,
            cached: spent.kinds.cached.tokens,
            output: spent.kinds.output.tokens + spent.kinds.reasoning.tokens,
        }
    };
    list.into_iter().map(row).collect()
}
