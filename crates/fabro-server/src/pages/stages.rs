//! The list of a run's stages: pages of it for readers without JavaScript, and the rows that the script asks for.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_inspect::Inspect;
use fabro_page::{Links, StageFilter, stage_rows};
use fabro_types::RunId;
use serde::Deserialize;

use super::{for_caller, query};
use crate::api::Params;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;

/// How many stages are loaded together, and leave the page together.
const BLOCK: usize = 20;

/// How many stages a page has at first.
const FIRST: usize = 3 * BLOCK;

/// The most rows of one request.
const MAX_ROWS: usize = 200;

/// Which stages are shown.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    pub(super) filter: String,
    #[serde(default)]
    pub(super) search: String,
    #[serde(default)]
    from: usize,
    /// How many rows, for the script.
    #[serde(default)]
    count: usize,
}

pub(super) struct Filter {
    pub(super) name: &'static str,
    pub(super) link: String,
    pub(super) is_chosen: bool,
}

/// A page of the list.
pub(super) struct Stages {
    pub(super) count: String,
    /// Where the script finds other rows.
    pub(super) address: String,
    pub(super) total: usize,
    pub(super) from: usize,
    pub(super) block: usize,
    /// A list of so many blocks stays whole.
    pub(super) keep: usize,
    /// Rows may change their places while the run continues.
    pub(super) is_sorted: bool,
    pub(super) blocks: Vec<String>,
    pub(super) earlier: Option<String>,
    pub(super) later: Option<String>,
    pub(super) last: Option<String>,
}

impl Query {
    fn filter(&self) -> Result<StageFilter, Problem> {
        match &*self.filter {
            "" => Ok(StageFilter::All),
            name => StageFilter::parse(name).ok_or_else(|| {
                let fix = "use `all`, `failed`, `slow` or `costly`";
                Problem::invalid("`filter` is none of a run's page", fix)
            }),
        }
    }

    pub(super) fn stages(&self, run: &Inspect, links: &Links) -> Result<Stages, Problem> {
        let filter = self.filter()?;
        let chosen = filter.select(&run.stages, &self.search);
        let total = chosen.len();
        // The last page is full.
        let from = self.from.min(total.saturating_sub(1)) / BLOCK * BLOCK;
        let end = total.min(from + FIRST);
        let blocks = chosen[from..end].chunks(BLOCK);
        let rows = |places: &[usize]| stage_rows(places.iter().map(|at| &run.stages[*at]), links);
        let count = if end - from == total {
            format!("{total} of {}", run.stages.len())
        } else {
            format!("{} to {end} of {total}", from + 1)
        };
        let place =
            |from: usize| format!("{}#stages", address(run.id, &self.filter, &self.search, from));
        let last = total.saturating_sub(1) / FIRST * FIRST;
        Ok(Stages {
            count,
            address: format!(
                "/runs/{}/rows{}",
                run.id,
                query(&[("filter", &self.filter), ("search", &self.search)])
            ),
            total,
            from,
            block: BLOCK,
            keep: FIRST / BLOCK,
            is_sorted: matches!(filter, StageFilter::Slow | StageFilter::Costly),
            blocks: blocks.map(rows).collect(),
            earlier: (from > 0).then(|| place(from.saturating_sub(FIRST))),
            later: (end < total).then(|| place(end)),
            last: (end < total).then(|| place(last)),
        })
    }

    pub(super) fn filters(&self, run: RunId) -> Vec<Filter> {
        let named = StageFilter::ALL.into_iter().map(|(filter, word)| {
            let name = match filter {
                StageFilter::All => "All",
                StageFilter::Failed => "Failed",
                StageFilter::Slow => "Slowest",
                StageFilter::Costly => "Costliest",
            };
            let is_chosen =
                self.filter == word || self.filter.is_empty() && filter == StageFilter::All;
            let link = format!("{}#stages", address(run, word, &self.search, 0));
            Filter { name, link, is_chosen }
        });
        named.collect()
    }
}

fn address(run: RunId, filter: &str, search: &str, from: usize) -> String {
    let from = if from == 0 { String::new() } else { from.to_string() };
    let query = query(&[("filter", filter), ("search", search), ("from", &from)]);
    format!("/runs/{run}{query}")
}

/// Rows alone, for the script.
pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<Path<String>, PathRejection>,
    query: Result<Params<Query>, Problem>,
) -> Response {
    for_caller(caller, async |_| {
        let (Path(run), Params(query)) = (run?, query?);
        let run = app.actions.find(&run).await?;
        let view = app.folds.view(run).await?;
        let chosen = query.filter()?.select(&view.run.stages, &query.search);
        let rows = chosen.iter().skip(query.from).take(query.count.min(MAX_ROWS));
        let links = Links::Server(format!("/runs/{run}"));
        Ok(stage_rows(rows.map(|at| &view.run.stages[*at]), &links))
    })
    .await
}
