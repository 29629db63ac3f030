//! The branches that join at a fan-in, and which of them was best.

use std::collections::HashMap;

use fabro_engine::{Stage, StageEnd, keys};
use fabro_types::{BranchResult, Failure, FailureClass, Outcome, Status};
use serde::Deserialize;
use serde_json::Value;

use super::interpret::{Interpretation, Reply, response_outcome};
use crate::common::value_of;
use crate::preamble::Preambles;

/// The branches of a fan-out, the best first.
pub struct FanIn {
    ranked: Vec<BranchResult>,
}

impl FanIn {
    /// The branches that join at this stage.
    ///
    /// # Errors
    ///
    /// The stage ends: there were no branches, for a list was empty; or it fails: there is no fan-out, or
    /// all of its branches failed.
    pub fn of(stage: &Stage) -> Result<Self, StageEnd> {
        let mut ranked = results(stage)?;
        let all = ranked.len();
        ranked.sort_by_key(|result| result.status);
        let fan_in = Self { ranked };
        match fan_in.ranked.first() {
            None => Err(no_branches().into()),
            Some(best) if best.status == Status::Failed => {
                let failed = Outcome::failed(failure(&format!("all {all} branches failed")));
                Err(fan_in.best(failed).into())
            }
            Some(_) => Ok(fan_in),
        }
    }

    /// What a model that chooses reads after its prompt.
    pub(crate) async fn sections(
        &self,
        stage: &Stage,
        preambles: &Preambles,
    ) -> Result<String, Failure> {
        let branches = preambles.branches(stage, &self.ranked).await?;
        Ok(format!(
            "## Branches\n\n{branches}\n\nName the id of the best branch on the last line of your answer."
        ))
    }

    /// The outcome with the branch of the best status.
    pub fn best(&self, outcome: Outcome) -> Outcome {
        self.ranked.first().map_or(outcome.clone(), |best| chosen(outcome, best))
    }

    /// The outcome by the reply of the model.
    pub fn interpret(&self, node: &str, reply: &Reply) -> Interpretation {
        let mut outcome = response_outcome(node, &reply.text);
        // The end of an answer that is cut off names no choice.
        let named = named(&reply.text, &self.ranked).filter(|_| !reply.is_cut_off);
        outcome = match named {
            Some(named) => chosen(outcome, named),
            None => Outcome {
                notes: Some("the answer names no branch; the best status won".to_owned()),
                ..self.best(outcome)
            },
        };
        Interpretation::Valid { outcome: Box::new(outcome), notices: Vec::new() }
    }
}

/// The end of a fan-in behind an empty list.
fn no_branches() -> Outcome {
    let outcome = Outcome {
        notes: Some("the list was empty: there is no branch to choose".to_owned()),
        ..Outcome::succeeded()
    };
    outcome
        .with_update(keys::FAN_IN_BEST_ID, Value::Null)
        .with_update(keys::FAN_IN_BEST_OUTCOME, Value::Null)
        .with_update(keys::FAN_IN_BEST_HEAD_SHA, Value::Null)
}

fn failure(message: &str) -> Failure {
    Failure::new(FailureClass::Deterministic, message)
}

fn results(stage: &Stage) -> Result<Vec<BranchResult>, Failure> {
    let missing = || failure("a fan-in needs a fan-out before it");
    let value = stage.context.get(keys::PARALLEL_RESULTS).ok_or_else(missing)?;
    Vec::deserialize(&*value_of(stage, value)?)
        .map_err(|error| failure(&format!("{} cannot be read: {error}", keys::PARALLEL_RESULTS)))
}

fn chosen(outcome: Outcome, best: &BranchResult) -> Outcome {
    outcome
        .with_update(keys::FAN_IN_BEST_ID, &*best.id)
        .with_update(keys::FAN_IN_BEST_OUTCOME, best.status.as_str())
        .with_update(keys::FAN_IN_BEST_HEAD_SHA, best.head_sha.clone())
}

/// The branch whose id an answer names last. Ids may have dots and, of lists, brackets in them.
fn named<'a>(text: &str, results: &'a [BranchResult]) -> Option<&'a BranchResult> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let ids: HashMap<&str, &BranchResult> =
        results.iter().rev().map(|result| (&*result.id, result)).collect();
    text.lines().rev().find_map(|line| {
        let is_part = |c: char| is_word(c) || matches!(c, '.' | '[' | ']');
        let mut parts = line.rsplit(|c: char| !is_part(c));
        parts.find_map(|part| {
            let part = part.trim_matches('.');
            let whole = ids.get(part).or_else(|| ids.get(part.trim_start_matches('[')));
            let inner = || part.trim_matches(['[', ']']).rsplit(|c| !is_word(c));
            whole.or_else(|| inner().find_map(|word| ids.get(word))).copied()
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_line_with_one_id_names_the_branch() {
        let results =
            json!([{"id": "fast", "status": "failed"}, {"id": "slow", "status": "failed"}]);
        let results = Vec::deserialize(results).unwrap();
        for (text, id) in [
            ("slow is nice, but\n**fast**", Some("fast")),
            ("Best: `slow`.\n\nThank you", Some("slow")),
            ("fast or slow?", Some("slow")),
            ("fast is better, so not slow: fast", Some("fast")),
            ("breakfast", None),
        ] {
            assert_eq!(named(text, &results).map(|result| &*result.id), id);
        }
        let of_lists = json!([{"id": "work[0]", "status": "failed"}, {"id": "work[10]", "status": "failed"}, {"id": "lib.work", "status": "failed"}]);
        let of_lists = Vec::deserialize(of_lists).unwrap();
        for (text, id) in [
            ("work[0] or work[10].", Some("work[10]")),
            ("Best: **work[0]**", Some("work[0]")),
            ("[work[0]]: not `lib.work`?", Some("lib.work")),
            ("It is lib.work.", Some("lib.work")),
            ("work", None),
        ] {
            assert_eq!(named(text, &of_lists).map(|result| &*result.id), id, "{text}");
        }
    }
}
