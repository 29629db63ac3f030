use fabro_tokens::CountTokens;
use fabro_types::Fidelity;

use crate::budget::{Budget, cut_markdown, cut_to_tokens};
use crate::context::{self, ContextSection, MOST_COUNTED};
use crate::stage::{StageBlock, headline_only, variants};
use crate::text::{one_line, plural};
use crate::{Preamble, Stage};

const MEDIUM_CEILING: usize = 1_500;
const LOW_CEILING: usize = 600;

/// Every heading and every note about omitted items, at its longest.
const FRAME: &str = "# Parent workflow\n\n… (cut)\n\n# This workflow\n\nGoal: … (goal cut)\n\n\
    ## Completed stages\n\n(1000000 earlier stages omitted)\n\n## Context\n\
    - (more than 1000 values omitted)";

pub(crate) fn render(input: Preamble<'_>, count: &dyn CountTokens) -> String {
    let limit = match input.fidelity {
        Fidelity::Full => return String::new(),
        Fidelity::Compact | Fidelity::Truncate => input.limits.compact,
        Fidelity::SummaryHigh => input.limits.high,
        Fidelity::SummaryMedium => MEDIUM_CEILING,
        Fidelity::SummaryLow => LOW_CEILING,
    };
    let mut plan = plan(input, limit, count);
    loop {
        let text = assemble(&plan);
        if count.fits(&text, limit) {
            return text;
        }
        if !plan.shrink() {
            return String::new();
        }
    }
}

/// The selected content of the text.
struct Plan {
    fidelity: Fidelity,
    parent: Option<String>,
    parent_cut: bool,
    goal: Option<String>,
    goal_cut: bool,
    run_id: Option<String>,
    /// Newest first.
    stages: Vec<StageBlock>,
    total_stages: usize,
    context: ContextSection,
    /// How many items the next [`Plan::shrink`] omits; doubles each time.
    shrunk: usize,
}

/// Spends the ceiling in the order of importance.
fn plan(input: Preamble<'_>, limit: usize, count: &dyn CountTokens) -> Plan {
    let fidelity = input.fidelity;
    let mut budget = Budget::new(limit, count);
    let truncate = fidelity == Fidelity::Truncate;
    let run_id = truncate.then(|| one_line(input.run_id.as_deref().unwrap_or_default(), 200));
    budget.take(FRAME, limit / 2);
    budget.take(run_id.as_deref().unwrap_or_default(), limit);
    let (goal, goal_cut) = take_goal(input.goal, &mut budget, limit, count);
    let mut plan = Plan {
        fidelity,
        parent: None,
        parent_cut: false,
        goal,
        goal_cut,
        run_id,
        stages: Vec::new(),
        total_stages: input.stages.len() + input.earlier_count,
        context: ContextSection::default(),
        shrunk: 1,
    };
    if truncate {
        return plan;
    }
    if let Some(parent) = input.parent.filter(|parent| !parent.trim().is_empty()) {
        let (parent, cut) = cut_markdown(parent.trim_end(), limit / 3, count);
        if budget.take(&parent, limit) {
            plan.parent = Some(parent);
            plan.parent_cut = cut;
        }
    }
    if fidelity != Fidelity::SummaryLow {
        budget.section(limit / 4);
        plan.context =
            context::collect(input.context.into_iter().chain(input.more_context), &mut budget);
        budget.section(limit);
    }
    let newest_first = input.stages.into_iter().rev().chain(input.earlier);
    plan.stages = take_stages(newest_first, fidelity, &mut budget, limit);
    let covered: Vec<&str> = plan.stages.iter().filter_map(|block| block.covers).collect();
    plan.context.lines.retain(|line| !covered.contains(&line.key.as_str()));
    plan
}

fn take_goal(
    goal: &str,
    budget: &mut Budget<'_>,
    limit: usize,
    count: &dyn CountTokens,
) -> (Option<String>, bool) {
    let goal = goal.trim();
    if goal.is_empty() {
        return (None, false);
    }
    let (whole, cut) = cut_to_tokens(goal, limit, count);
    if !cut && budget.take(&whole, limit) {
        return (Some(whole), false);
    }
    let room = limit.saturating_sub(count.count(FRAME)).max(limit / 2);
    let (kept, _) = cut_to_tokens(goal, room, count);
    budget.take(&kept, limit);
    (Some(kept), true)
}

/// The newest stages, as many as fit. One that does not fit with all its detail is tried with less,
/// down to its headline.
fn take_stages(
    newest_first: impl Iterator<Item = Stage>,
    fidelity: Fidelity,
    budget: &mut Budget<'_>,
    limit: usize,
) -> Vec<StageBlock> {
    let mut blocks = Vec::new();
    for stage in newest_first {
        let fitting = if budget.is_exhausted() {
            Some(headline_only(&stage, fidelity)).filter(|block| budget.take(&block.text, limit))
        } else {
            variants(&stage, fidelity).find(|block| budget.take(&block.text, limit / 2))
        };
        match fitting {
            Some(block) => blocks.push(block),
            None => break,
        }
    }
    blocks
}

impl Plan {
    /// Omits more, the least important first; false when nothing is left.
    fn shrink(&mut self) -> bool {
        let step = self.shrunk;
        self.shrunk = step.saturating_mul(2);
        if !self.context.lines.is_empty() {
            let kept = self.context.lines.len().saturating_sub(step);
            self.context.omitted += self.context.lines.len() - kept;
            self.context.lines.truncate(kept);
        } else if !self.stages.is_empty() {
            self.stages.truncate(self.stages.len().saturating_sub(step));
        } else if self.parent.is_some() {
            self.parent = None;
        } else if let Some(goal) = self.goal.as_mut().filter(|goal| !goal.is_empty()) {
            goal.truncate(goal.floor_char_boundary(goal.len() - goal.len().div_ceil(8)));
            self.goal_cut = true;
        } else {
            return false;
        }
        true
    }
}

fn assemble(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(parent) = &plan.parent {
        push(&mut text, "", "# Parent workflow");
        push(&mut text, "\n\n", parent);
        if plan.parent_cut {
            push(&mut text, "\n", "… (cut)");
        }
        push(&mut text, "\n\n", "# This workflow");
    }
    if let Some(goal) = &plan.goal {
        let mark = if plan.goal_cut { "… (goal cut)" } else { "" };
        push(&mut text, "\n\n", &format!("Goal: {goal}{mark}"));
    }
    if let Some(run_id) = &plan.run_id {
        push(&mut text, "\n", &format!("Run: {run_id}"));
    } else {
        push_stages(plan, &mut text);
        push_context(&plan.context, &mut text);
    }
    text
}

fn push_stages(plan: &Plan, text: &mut String) {
    let omitted = plan.total_stages.saturating_sub(plan.stages.len());
    if plan.stages.is_empty() && omitted == 0 {
        return;
    }
    let gap = if plan.fidelity == Fidelity::SummaryHigh { "\n\n" } else { "\n" };
    push(text, "\n\n", "## Completed stages");
    if omitted > 0 {
        push(text, gap, &format!("({} omitted)", plural(omitted, "earlier stage")));
    }
    for block in plan.stages.iter().rev() {
        push(text, gap, block.text.trim_end_matches('\n'));
    }
}

fn push_context(context: &ContextSection, text: &mut String) {
    if context.lines.is_empty() && context.omitted == 0 {
        return;
    }
    push(text, "\n\n", "## Context");
    for line in &context.lines {
        push(text, "\n", line.text.trim_end_matches('\n'));
    }
    let note = match context.omitted {
        0 => return,
        omitted if omitted > MOST_COUNTED => {
            format!("- (more than {MOST_COUNTED} values omitted)")
        }
        omitted => format!("- ({} omitted)", plural(omitted, "value")),
    };
    push(text, "\n", &note);
}

/// Adds a part after `gap`, or at the beginning.
fn push(text: &mut String, gap: &str, part: &str) {
    if !text.is_empty() {
        text.push_str(gap);
    }
    text.push_str(part);
}
