use fabro_tokens::CountTokens;
use fabro_types::Fidelity;
use serde_json::Value;

use crate::context::{self, MOST_COUNTED};
use crate::fit::{Block, Ceiling, Collected, Field, SaveValue, Shape, Whole};
use crate::stage::{self, item_indent};
use crate::text::{clean, one_line, plural};
use crate::tokens::{cut_to_tokens, within};
use crate::{Branch, Preamble};

const MEDIUM_CEILING: usize = 1_500;
const LOW_CEILING: usize = 600;

/// Every heading and every note about omitted items, at its longest.
const FRAME: &str = "# Parent workflow\n\n\n\n# This workflow\n\nGoal: … (goal cut)\n\n\
    ## Completed stages\n\n(1000000 earlier stages omitted)\n\n## Context\n\
    - (more than 1000 values omitted)";

pub(crate) fn render(input: Preamble<'_>, counter: &dyn CountTokens) -> String {
    let limit = match input.fidelity {
        Fidelity::Full => return String::new(),
        Fidelity::Compact | Fidelity::Truncate => input.limits.compact,
        Fidelity::SummaryHigh => input.limits.high,
        Fidelity::SummaryMedium => MEDIUM_CEILING,
        Fidelity::SummaryLow => LOW_CEILING,
    };
    let ceiling = Ceiling::new(limit, counter, input.save.is_some());
    let no_paths: Box<SaveValue<'_>> = Box::new(|_| None);
    let (mut content, save) = Content::collect(input, &ceiling);
    let save = save.unwrap_or(no_paths);
    if content.fits_by_bytes(limit) {
        return content.text(&Layout::whole(&content), &*save);
    }
    content.measure(&ceiling);
    within(limit, counter, |room| content.text(&content.layout(room, &ceiling), &*save))
}

/// The branches of a fan-out as sections, in at most `limit` tokens.
pub(crate) fn render_branches(
    branches: &[Branch],
    fidelity: Fidelity,
    limit: usize,
    counter: &dyn CountTokens,
    save: &SaveValue<'_>,
) -> String {
    let ceiling = Ceiling::new(limit, counter, true).keep_blocks();
    let mut sections = branches.iter().map(|branch| stage::branch_section(branch, fidelity));
    let mut collected = ceiling.collect(&mut sections, 0);
    ceiling.measure(&mut collected);
    let blocks: Vec<&Block> = collected.blocks.iter().collect();
    within(limit, counter, |room| {
        let shown = &blocks[..fitting(&blocks, room, |block| ceiling.least_of(block))];
        let field_limit = Ceiling::field_limit(shown.iter().copied(), room);
        let mut text = String::new();
        for block in shown {
            push(&mut text, "\n\n", block.text(field_limit, save).trim_end_matches('\n'));
        }
        match branches.len() - shown.len() {
            0 => {}
            1 => push(&mut text, "\n\n", "(1 branch omitted)"),
            omitted => push(&mut text, "\n\n", &format!("({omitted} branches omitted)")),
        }
        text
    })
}

/// What there is to show.
struct Content<'a> {
    fidelity: Fidelity,
    goal: &'a str,
    run_id: Option<String>,
    /// At most one.
    parent: Collected,
    /// Newest first.
    stages: Collected,
    total_stages: usize,
    context: Collected,
}

/// What is shown of it.
struct Layout<'a> {
    goal: String,
    goal_cut: bool,
    parent: Option<&'a Block>,
    /// Newest first.
    stages: &'a [Block],
    context: Vec<&'a Block>,
    context_omitted: usize,
    /// The most tokens of a field.
    field_limit: usize,
}

impl<'a> Content<'a> {
    fn collect(input: Preamble<'a>, ceiling: &Ceiling<'_>) -> (Self, Option<Box<SaveValue<'a>>>) {
        let fidelity = input.fidelity;
        let is_truncate = fidelity == Fidelity::Truncate;
        let run_id =
            is_truncate.then(|| one_line(input.run_id.as_deref().unwrap_or_default(), 200));
        let mut content = Self {
            fidelity,
            goal: input.goal.trim(),
            run_id,
            parent: Collected::default(),
            stages: Collected::default(),
            total_stages: input.stages.len() + input.earlier_count,
            context: Collected::default(),
        };
        if is_truncate {
            return (content, input.save);
        }
        let parent = input.parent.map(str::trim_end).filter(|parent| !parent.trim().is_empty());
        let parent = parent.map(|text| {
            let mut block = Block::default();
            block.field(Field::new(0, "", Shape::Markdown, text, Whole::Text(text.to_owned())));
            block
        });
        content.parent = ceiling.collect(&mut parent.into_iter(), 0);
        let newest_first = input.stages.into_iter().rev().chain(input.earlier);
        let mut stages = newest_first.map(|stage| stage::block(&stage, fidelity));
        content.stages = ceiling.collect(&mut stages, item_indent(fidelity));
        if fidelity != Fidelity::SummaryLow {
            let values = input.context.into_iter().chain(input.more_context);
            let mut values = values.filter_map(|(key, value)| context::block(key, &value));
            content.context = ceiling.collect(&mut values, 0);
            content.context.rest += values.take(MOST_COUNTED).count();
        }
        (content, input.save)
    }

    fn sections(&mut self) -> [&mut Collected; 3] {
        [&mut self.parent, &mut self.stages, &mut self.context]
    }

    /// A token has at least one byte: a short preamble is not counted, and loads no vocabulary.
    fn fits_by_bytes(&mut self, limit: usize) -> bool {
        let own = FRAME.len() + self.goal.len() + self.run_id.as_ref().map_or(0, String::len);
        let sections = self.sections().into_iter().map(|section| section.bytes());
        let total: Option<usize> = sections.sum();
        total.is_some_and(|total| total + own <= limit)
    }

    fn measure(&mut self, ceiling: &Ceiling<'_>) {
        for section in self.sections() {
            ceiling.measure(section);
        }
    }

    /// The context values that the newest stages do not show.
    fn context_beside(&self, stages: &[Block]) -> Vec<&Block> {
        let covered = stages.iter().filter_map(|stage| stage.key.as_deref());
        let covered: Vec<_> = covered.collect();
        let is_shown =
            |block: &&Block| !block.key.as_deref().is_some_and(|key| covered.contains(&key));
        self.context.blocks.iter().filter(is_shown).collect()
    }

    /// Spends the room in the order of importance: the goal, the parent, then stages and values.
    fn layout(&self, room: usize, ceiling: &Ceiling<'_>) -> Layout<'_> {
        let frame = ceiling.counter.count(FRAME);
        let run_id = self.run_id.as_ref().map_or(0, |id| ceiling.counter.count(id));
        let goal_room = room.saturating_sub(frame + run_id).max(room / 2);
        let (goal, goal_cut) = cut_to_tokens(self.goal, goal_room, ceiling.counter);
        let left = room.saturating_sub(frame + run_id);
        let left = left.saturating_sub(ceiling.counter.count(&goal));
        let least = |block: &Block| ceiling.least_of(block);
        let sum = |blocks: &[&Block]| {
            blocks.iter().map(|block| least(block)).fold(0, usize::saturating_add)
        };
        let parent = self.parent.blocks.first().filter(|block| least(block) <= left);
        let rest = left - parent.map_or(0, least);

        let stages: Vec<&Block> = self.stages.blocks.iter().collect();
        let context = self.context_beside(&self.stages.blocks);
        let share = rest.saturating_sub(sum(&stages)).max(rest / 4);
        let stage_room = rest - sum(&context).min(share);
        let shown = fitting(&stages, stage_room, least);
        let used = sum(&stages[..shown]);
        let stages = &self.stages.blocks[..shown];

        let mut context = self.context_beside(stages);
        let kept = fitting(&context, rest - used, least);
        let context_omitted = self.context.rest + context.len() - kept;
        context.truncate(kept);
        let blocks = parent.into_iter().chain(stages).chain(context.iter().copied());
        let field_limit = Ceiling::field_limit(blocks, left);
        Layout { goal, goal_cut, parent, stages, context, context_omitted, field_limit }
    }

    fn text(&self, layout: &Layout<'_>, save: &SaveValue<'_>) -> String {
        let mut text = String::new();
        if let Some(parent) = layout.parent {
            push(&mut text, "", "# Parent workflow");
            push(&mut text, "\n\n", parent.text(layout.field_limit, save).trim_end());
            push(&mut text, "\n\n", "# This workflow");
        }
        if !self.goal.is_empty() {
            push(&mut text, "\n\n", &format!("Goal: {}", layout.goal));
            if layout.goal_cut {
                text.push_str("… (goal cut)");
                let path = save(&Value::from(self.goal));
                text.extend(path.map(|path| format!(" See: {path}")));
            }
        }
        if let Some(run_id) = &self.run_id {
            push(&mut text, "\n", &format!("Run: {run_id}"));
            return text;
        }
        self.push_stages(layout, save, &mut text);
        push_context(layout, save, &mut text);
        text
    }

    fn push_stages(&self, layout: &Layout<'_>, save: &SaveValue<'_>, text: &mut String) {
        let omitted = self.total_stages.saturating_sub(layout.stages.len());
        if layout.stages.is_empty() && omitted == 0 {
            return;
        }
        let gap = if self.fidelity == Fidelity::SummaryHigh { "\n\n" } else { "\n" };
        push(text, "\n\n", "## Completed stages");
        if omitted > 0 {
            push(text, gap, &format!("({} omitted)", plural(omitted, "earlier stage")));
        }
        for block in layout.stages.iter().rev() {
            push(text, gap, block.text(layout.field_limit, save).trim_end_matches('\n'));
        }
    }
}

impl<'a> Layout<'a> {
    fn whole(content: &'a Content<'_>) -> Self {
        Self {
            goal: clean(content.goal).into_owned(),
            goal_cut: false,
            parent: content.parent.blocks.first(),
            stages: &content.stages.blocks,
            context: content.context_beside(&content.stages.blocks),
            context_omitted: content.context.rest,
            field_limit: usize::MAX,
        }
    }
}

/// How many of the first blocks fit.
fn fitting(blocks: &[&Block], room: usize, size: impl Fn(&Block) -> usize) -> usize {
    let mut used = 0_usize;
    let fits = |block: &&&Block| {
        used = used.saturating_add(size(block));
        used <= room
    };
    blocks.iter().take_while(fits).count()
}

fn push_context(layout: &Layout<'_>, save: &SaveValue<'_>, text: &mut String) {
    if layout.context.is_empty() && layout.context_omitted == 0 {
        return;
    }
    push(text, "\n\n", "## Context");
    for block in &layout.context {
        push(text, "\n", block.text(layout.field_limit, save).trim_end_matches('\n'));
    }
    let note = match layout.context_omitted {
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
