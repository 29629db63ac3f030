//! Exit nodes: goal gates, the status and reason of an exit, and the end of the run.

use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_blob::READ_LIMIT;
use fabro_events::{EventBody, OverriddenCheck, StageFailure};
use fabro_graph::NodeIx;
use fabro_plan::{ExitSpec, Mode, NodeSpec};
use fabro_types::{BlobRef, Failure, FailureClass, NodeKind, Outcome, Status};

use crate::cursor::Cursor;
use crate::inconsistent::Inconsistent;
use crate::line::{MAIN, is_main};
use crate::machine::{Machine, completed};
use crate::open_failures::unvisited_gate_failure;
use crate::run_vars::RunVars;
use crate::select::Values;
use crate::transition::{GoalGates, jump_to_gate_target};

impl Machine {
    /// A line has reached an exit.
    pub(crate) fn exit(&mut self, branch: &Arc<str>, node: &NodeSpec) -> Result<(), Inconsistent> {
        let missing = || Inconsistent::new(format!("`{}` is not an exit", node.id));
        let exit = node.exit().ok_or_else(missing)?;
        if is_main(branch) && exit.status != Some(Status::Failed) {
            match self.goal_gates(exit)? {
                GoalGates::Met => {}
                GoalGates::Failed(failure) => {
                    self.fail_run(failure);
                    return Ok(());
                }
                GoalGates::Retry(choice) => {
                    let visit = self.cursor(MAIN)?.visits_of(&node.id) + 1;
                    let from = self.node_index(&node.id)?;
                    let choice = self.with_handling(branch, from, choice)?;
                    self.emit_for(branch, node, visit, EventBody::EdgeSelected(choice));
                    self.runnable_lines.push_back(Arc::clone(branch));
                    return Ok(());
                }
            }
        }
        let reason = match self.exit_reason(branch, exit)? {
            Ok(reason) => reason,
            Err(needs) => {
                self.need(needs, READ_LIMIT);
                self.runnable_lines.push_front(Arc::clone(branch));
                return Ok(());
            }
        };
        let visit = self.start_stage(branch, node, None)?;
        let outcome = Outcome { notes: reason.clone(), ..Outcome::succeeded() };
        let end = completed(self.running_stage(branch)?, outcome.into());
        self.emit_for(branch, node, visit, EventBody::StageCompleted(Arc::new(end)));
        let failure = (exit.status == Some(Status::Failed)).then(|| {
            let default = || format!("the run reached `{}`, an exit with status=failed", node.id);
            let message = reason.unwrap_or_else(default);
            Failure::new(FailureClass::Deterministic, message).signed(&node.id)
        });
        match failure {
            _ if !is_main(branch) => self.end_branch(branch, failure)?,
            Some(failure) => self.fail_run(failure),
            None => self.complete_run(exit)?,
        }
        Ok(())
    }

    fn complete_run(&mut self, exit: &ExitSpec) -> Result<(), Inconsistent> {
        let unhandled = self.unhandled(self.cursor(MAIN)?);
        let unhandled: Vec<StageFailure> =
            unhandled.into_iter().map(Arc::unwrap_or_clone).collect();
        let status = match exit.status {
            Some(status) if unhandled.is_empty() => status,
            None if unhandled.is_empty() => Status::Succeeded,
            _ => Status::PartiallySucceeded,
        };
        let body = EventBody::RunCompleted {
            status,
            usage: self.state.usage.clone(),
            artifact_count: self.state.artifact_count,
            unhandled,
            overridden: self.overridden(),
        };
        self.emit(MAIN, body);
        Ok(())
    }

    /// The failed checks that a person has overridden.
    pub(crate) fn overridden(&self) -> Vec<OverriddenCheck> {
        let main = self.state.main();
        main.map(|main| main.overridden.iter().cloned().collect()).unwrap_or_default()
    }

    /// The rendered reason of the exit, or the blobs that have to be read first.
    fn exit_reason(
        &self,
        branch: &str,
        exit: &ExitSpec,
    ) -> Result<Result<Option<String>, BTreeSet<BlobRef>>, Inconsistent> {
        let Some(reason) = &exit.reason else { return Ok(Ok(None)) };
        let values = Values { read: &self.values, pending: &self.commit.blobs };
        let vars = RunVars::new(self.state.created()?, &self.cursor(branch)?.context, values);
        let text = reason.template.render(Arc::clone(&vars) as _, Mode::Text);
        let needs = vars.needs();
        if !needs.is_empty() {
            return Ok(Err(needs));
        }
        Ok(Ok(Some(text.unwrap_or_else(|error| format!("{} ({error})", reason.text.trim())))))
    }

    /// Checks the goal gates at an exit: visited gates in the order of their first visits, then
    /// unvisited ones.
    fn goal_gates(&self, exit: &ExitSpec) -> Result<GoalGates, Inconsistent> {
        let cursor = self.cursor(MAIN)?;
        let visited = self.unmet_gate(cursor)?;
        let GoalGates::Met = visited else { return Ok(visited) };
        let Some(gate) = self.unvisited_gate(cursor, exit)? else { return Ok(visited) };
        let failure = unvisited_gate_failure(&gate.id);
        if let Some(failure) = self.circuit_breaker_tripped(cursor, &gate.id, &failure) {
            return Ok(GoalGates::Failed(failure));
        }
        Ok(match self.jump(cursor, &gate.id)? {
            Some((_, to)) => GoalGates::Retry(jump_to_gate_target(to, &gate.id)),
            None => GoalGates::Failed(failure),
        })
    }

    /// The first goal gate, in file order, that was not visited and that neither the exit nor a
    /// fan-out excuses.
    fn unvisited_gate(
        &self,
        cursor: &Cursor,
        exit: &ExitSpec,
    ) -> Result<Option<&NodeSpec>, Inconsistent> {
        // A dry run follows assumed edges, so its visits say nothing about gates.
        if exit.status.is_some() || self.state.created()?.dry_run {
            return Ok(None);
        }
        let does_work =
            |kind| !matches!(kind, NodeKind::Start | NodeKind::Exit | NodeKind::Conditional);
        let unvisited = self.plan.goal_gates().iter().find(|ix| {
            let gate = self.plan.spec(**ix);
            does_work(gate.kind)
                && cursor.visits_of(&gate.id) == 0
                && !self.excused_by_fan_out(cursor, **ix)
        });
        Ok(unvisited.map(|ix| self.plan.spec(*ix)))
    }

    /// Whether a fan-out that ran did not need the gate: no branch leading to it was started, or the
    /// join policy allows failed branches.
    fn excused_by_fan_out(&self, cursor: &Cursor, gate: NodeIx) -> bool {
        let workflow = self.plan.workflow();
        let visited = |ix: NodeIx| cursor.visits_of(&self.plan.spec(ix).id) > 0;
        workflow.node_indices().filter(|ix| visited(*ix)).any(|fan_out| {
            let Some(parallel) = self.plan.spec(fan_out).parallel() else { return false };
            let join = self.plan.join(fan_out);
            let is_outside = |ix: NodeIx| ix == fan_out || Some(ix) == join;
            let targets = workflow.outgoing(fan_out).map(|edge| workflow.edge(edge).to);
            let leads_to_gate = |from: &NodeIx| {
                let mut seen = BTreeSet::from([*from]);
                let mut queue = vec![*from];
                while let Some(at) = queue.pop() {
                    if at == gate {
                        return true;
                    }
                    let next = workflow.outgoing(at).map(|edge| workflow.edge(edge).to);
                    queue.extend(next.filter(|to| !is_outside(*to) && seen.insert(*to)));
                }
                false
            };
            let mut leading = targets.filter(|to| !is_outside(*to) && leads_to_gate(to)).peekable();
            leading.peek().is_some()
                && (parallel.join_policy.allows_failed_branches() || !leading.any(visited))
        })
    }
}
