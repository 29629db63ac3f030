//! `fabro resume`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use fabro_engine::{Phase, RunState, read_all};
use fabro_handlers::Bundle;
use fabro_types::{RunId, RunStatus};
use serde_json::Map;

use crate::cli::ResumeArgs;
use crate::commands::run::detach;
use crate::drive::{Driven, drive};
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::wiring::{self, read_option};

/// Goes on with a run.
pub async fn resume(args: ResumeArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run_id) = global.whole_run_to_change(&args.run, "resume").await?;
    let lock = store.lock(run_id)?;
    let events = read_all(&store, run_id).await?;
    let state = RunState::replay(run_id, &events);
    let Some(created) = state.created.clone() else {
        return Err(error::failed(
            format!("run {run_id} has no beginning"),
            "its log is damaged; look at it with `fabro events`",
        ));
    };
    if let Phase::Ended(status, _) = &state.phase {
        return Err(ended(run_id, *status, global));
    }
    let bundle = Bundle::load(&store, &created.bundle)?;
    let mut settings = bundle.settings.clone();
    if let Some(path) = &args.answers {
        settings.answers = Some(read_option(path, "the answers")?);
        fabro_run::check_kept(&settings, &Map::new(), "")?;
        for warning in fabro_run::used_up(&settings, &bundle.settings, &events) {
            let word = global.paint_stderr().warning("warning:");
            crate::output::stderr(&format!("{word} {warning}\n"));
        }
    }
    if let Some(path) = &args.model_script {
        settings.model_script = Some(read_option(path, "the model script")?);
    }
    settings.auto_approve |= args.auto_approve;
    if args.detach {
        return detach(&store, lock, &options(&args), &BTreeMap::new()).await;
    }
    let driven = Driven {
        store,
        lock,
        plan: Arc::new(bundle.plan()?),
        settings,
        dry_run: created.dry_run,
        state,
        events,
        max_cost: args.max_cost,
        mode: wiring::mode(args.shown, global),
    };
    drive(driven, global).await
}

/// What a driver in the background is to be told.
fn options(args: &ResumeArgs) -> Vec<OsString> {
    let mut options = Vec::new();
    if let Some(max_cost) = args.max_cost {
        options.extend(["--max-cost".into(), max_cost.to_string().into()]);
    }
    for (name, file) in [("--answers", &args.answers), ("--model-script", &args.model_script)] {
        if let Some(file) = file {
            options.extend([name.into(), file.clone().into()]);
        }
    }
    if args.auto_approve {
        options.push("--auto-approve".into());
    }
    options
}

fn ended(run_id: RunId, status: RunStatus, global: &Global) -> anyhow::Error {
    error::usage(
        format!("run {run_id} is over: {status}"),
        format!(
            "go back in it with `{}`, or copy it with `{}`",
            global.command(&format!("rewind {run_id} NODE@VISIT")),
            global.command(&format!("fork {run_id} NODE@VISIT"))
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ShownArgs;

    #[test]
    fn a_driver_in_the_background_is_told_what_this_one_was() {
        let args = ResumeArgs {
            run: "latest".into(),
            max_cost: Some(2.5),
            answers: Some("a.json".into()),
            model_script: Some("m.json".into()),
            auto_approve: true,
            shown: ShownArgs::default(),
            detach: true,
        };
        let told = options(&args).join(std::ffi::OsStr::new(" "));
        let expect = "--max-cost 2.5 --answers a.json --model-script m.json --auto-approve";
        assert_eq!(told, expect);
        assert!(
            options(&ResumeArgs {
                max_cost: None,
                answers: None,
                model_script: None,
                auto_approve: false,
                ..args
            })
            .is_empty()
        );
    }
}
