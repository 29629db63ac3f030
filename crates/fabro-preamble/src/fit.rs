//! Fits blocks of text into a token ceiling: long fields are cut to one common length.

use std::fmt::Write as _;
use std::sync::Arc;

use fabro_tokens::CountTokens;
use serde_json::Value;

use crate::text::{Keep, clean, close_fence, fence, inline_code, plural};
use crate::tokens::common_limit;

/// Stores a value that is cut, and returns the path of its file; `None` where the reader could not
/// open it.
pub(crate) type SaveValue<'a> = dyn Fn(&Value) -> Option<String> + 'a;

/// At least this many tokens of a ceiling, as a divisor, are left of a field before older stages
/// are omitted for it.
const FIELDS_PER_CEILING: usize = 16;

/// The tokens of the note about what is cut.
const NOTE_TOKENS: usize = 20;
/// And of a path in it.
const PATH_TOKENS: usize = 90;

/// How the text of a field is shown.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Behind the label.
    Line,
    /// The same, as code.
    Code,
    /// Between fences, and what is kept when it is cut.
    Fence(Keep),
    /// Markdown without a label.
    Markdown,
}

/// A value as it was before a part of it was chosen.
pub(crate) enum Whole {
    Text(String),
    Value(Arc<Value>),
}

/// A text of any length with its label: the part of a block that a ceiling may cut.
pub(crate) struct Field {
    pub(crate) indent: usize,
    /// What precedes the colon.
    pub(crate) label: String,
    pub(crate) shape: Shape,
    /// What is shown while there is room.
    pub(crate) shown: String,
    pub(crate) whole: Whole,
    tokens: usize,
}

impl Field {
    pub(crate) fn new(indent: usize, label: &str, shape: Shape, shown: &str, whole: Whole) -> Self {
        let shown = clean(shown).into_owned();
        Self { indent, label: label.to_owned(), shape, shown, whole, tokens: 0 }
    }

    /// The text with at most about `limit` tokens.
    pub(crate) fn write(&self, limit: usize, save: &SaveValue<'_>, out: &mut String) {
        if self.tokens <= limit {
            self.write_part(&self.shown, None, out);
            return;
        }
        let path = save(&self.value());
        let note_tokens = NOTE_TOKENS + path.as_ref().map_or(0, |path| path.len().div_ceil(2));
        let bytes = self.shown.len() as u128 * limit.saturating_sub(note_tokens) as u128;
        let part = self.part((bytes / self.tokens.max(1) as u128) as usize);
        let total = match &self.whole {
            Whole::Text(text) => text.trim().chars().count(),
            Whole::Value(_) => self.shown.chars().count(),
        };
        let omitted = total.saturating_sub(part.chars().count()).max(1);
        let mut note = format!("({} omitted)", plural(omitted, "character"));
        if let Some(path) = path {
            note.push_str(" See: ");
            note.push_str(&path);
        }
        self.write_part(part, Some(&note), out);
    }

    /// At most so many bytes of the shown text; whole lines where that costs little.
    fn part(&self, bytes: usize) -> &str {
        let text = &*self.shown;
        if let Shape::Fence(Keep::Last) = self.shape {
            let start = text.ceil_char_boundary(text.len().saturating_sub(bytes));
            let line = text[start..].find('\n').filter(|at| *at < bytes / 4);
            return &text[line.map_or(start, |at| start + at + 1)..];
        }
        let end = text.floor_char_boundary(bytes);
        let line = text[..end].rfind('\n').filter(|at| *at > end - end / 4);
        text[..line.unwrap_or(end)].trim_end()
    }

    fn value(&self) -> Arc<Value> {
        match &self.whole {
            Whole::Text(text) => Arc::new(Value::from(text.as_str())),
            Whole::Value(value) => Arc::clone(value),
        }
    }

    fn write_part(&self, text: &str, note: Option<&str>, out: &mut String) {
        let indent = " ".repeat(self.indent);
        let note = note.unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = match self.shape {
            Shape::Markdown => {
                out.push_str(text);
                if !note.is_empty() {
                    close_fence(out);
                    out.push_str("\n… ");
                }
                writeln!(out, "{note}")
            }
            _ if text.is_empty() => writeln!(out, "{indent}- {}: {note}", self.label),
            Shape::Line | Shape::Code => {
                let text = text.replace('\n', " ");
                let code = matches!(self.shape, Shape::Code);
                let text = if code { inline_code(&text) } else { text };
                let more = if note.is_empty() { "" } else { "… " };
                writeln!(out, "{indent}- {}: {text}{more}{note}", self.label)
            }
            Shape::Fence(_) => {
                let gap = if note.is_empty() { "" } else { " " };
                let head = writeln!(out, "{indent}- {}:{gap}{note}", self.label);
                fence(text, &" ".repeat(self.indent + 2), out);
                head
            }
        };
    }
}

pub(crate) enum Part {
    /// Whole lines.
    Fixed(String),
    Field(Field),
}

/// Lines that are shown or omitted together: a stage, a context value, the text of a parent.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) parts: Vec<Part>,
    /// The context key of this block's value, or whose value the block already shows.
    pub(crate) key: Option<String>,
    /// Tokens of the fixed parts.
    fixed: usize,
}

impl Block {
    pub(crate) fn with_key(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn fixed(&mut self, lines: String) {
        self.parts.push(Part::Fixed(lines));
    }

    pub(crate) fn field(&mut self, field: Field) {
        self.parts.push(Part::Field(field));
    }

    fn fields(&self) -> impl Iterator<Item = &Field> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(field) => Some(field),
            Part::Fixed(_) => None,
        })
    }

    fn bytes(&self) -> usize {
        self.text(usize::MAX, &|_| None).len()
    }

    fn measure(&mut self, ceiling: &Ceiling<'_>) {
        self.fixed = 0;
        for part in &mut self.parts {
            match part {
                Part::Fixed(text) => {
                    self.fixed = self.fixed.saturating_add(ceiling.counter.count(text));
                }
                Part::Field(field) => field.tokens = ceiling.tokens_of(field),
            }
        }
    }

    /// Its tokens when its long fields are cut to `limit` tokens.
    fn cost(&self, limit: usize) -> usize {
        let fields = self.fields().map(|field| field.tokens.min(limit));
        fields.fold(self.fixed, usize::saturating_add)
    }

    /// Without its fields, with a note.
    fn without_fields(&mut self, indent: usize) {
        self.parts.truncate(1);
        self.fixed(format!("{:indent$}- (details omitted)\n", ""));
    }

    pub(crate) fn text(&self, limit: usize, save: &SaveValue<'_>) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Fixed(lines) => text.push_str(lines),
                Part::Field(field) => field.write(limit, save, &mut text),
            }
        }
        text
    }
}

/// A number of tokens, and how they are counted.
pub(crate) struct Ceiling<'a> {
    pub(crate) limit: usize,
    pub(crate) counter: &'a dyn CountTokens,
    /// What a field that is cut keeps before whole blocks are omitted, its note included.
    field: usize,
    /// What a field takes of which nothing but the note is left.
    note: usize,
}

impl<'a> Ceiling<'a> {
    pub(crate) fn new(limit: usize, counter: &'a dyn CountTokens, has_paths: bool) -> Self {
        let note = NOTE_TOKENS + if has_paths { PATH_TOKENS } else { 0 };
        Self { limit, counter, field: note.max(limit / FIELDS_PER_CEILING), note }
    }

    /// Fields are cut as short as can be before a block is omitted.
    pub(crate) fn keep_blocks(mut self) -> Self {
        self.field = self.note;
        self
    }

    /// The tokens of a whole field; those of one that cannot fit are estimated from its beginning.
    fn tokens_of(&self, field: &Field) -> usize {
        let mut text = String::new();
        field.write_part(&field.shown, None, &mut text);
        let end = text.floor_char_boundary(self.limit.saturating_mul(4).max(256));
        let counted = self.counter.count(&text[..end]);
        let tokens = (counted as u128 * text.len() as u128).div_ceil(end.max(1) as u128);
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    /// The first blocks: those whose long fields, cut, still fit.
    pub(crate) fn collect(
        &self,
        blocks: &mut dyn Iterator<Item = Block>,
        indent: usize,
    ) -> Collected {
        let mut collected = Collected::default();
        let mut used = 0_usize;
        for mut block in blocks {
            if !collected.is_measured {
                // A token has at least one byte: a short preamble loads no vocabulary.
                let bytes = block.bytes();
                if used + bytes <= self.limit {
                    used += bytes;
                    collected.blocks.push(block);
                    continue;
                }
                used = self.measure(&mut collected);
            }
            block.measure(self);
            let room = self.limit.saturating_sub(used);
            let least = self.least_of(&block);
            // A large fan-out is better shown without details than not at all.
            if least > room && least > self.limit / 4 && block.parts.len() > 2 {
                block.without_fields(indent);
                block.measure(self);
            }
            used = used.saturating_add(self.least_of(&block));
            if used > self.limit {
                collected.rest = 1;
                break;
            }
            collected.blocks.push(block);
        }
        collected.size = used;
        collected
    }

    /// Counts the blocks; their least size.
    pub(crate) fn measure(&self, collected: &mut Collected) -> usize {
        if collected.is_measured {
            return collected.size;
        }
        collected.is_measured = true;
        let blocks = &mut collected.blocks;
        for block in blocks.iter_mut() {
            block.measure(self);
        }
        let least = blocks.iter().map(|block| self.least_of(block));
        collected.size = least.fold(0, usize::saturating_add);
        collected.size
    }

    /// The least that a block is worth being shown with.
    pub(crate) fn least_of(&self, block: &Block) -> usize {
        let least = block.cost(self.field);
        if least > self.limit / 2 { block.cost(self.note) } else { least }
    }

    /// The largest common limit of fields with which the blocks have at most `room` tokens.
    pub(crate) fn field_limit<'b>(
        blocks: impl Iterator<Item = &'b Block> + Clone,
        room: usize,
    ) -> usize {
        let fixed = blocks.clone().map(|block| block.fixed).fold(0, usize::saturating_add);
        let fields = blocks.flat_map(Block::fields).map(|field| field.tokens);
        common_limit(fields.collect(), room.saturating_sub(fixed))
    }
}

/// Blocks that may be shown.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) blocks: Vec<Block>,
    /// How many more were read and not taken.
    pub(crate) rest: usize,
    /// Bytes, or the least tokens once they are measured.
    size: usize,
    is_measured: bool,
}

impl Collected {
    /// Whether all of them fit `limit` by their bytes.
    pub(crate) fn bytes(&self) -> Option<usize> {
        (!self.is_measured).then_some(self.size)
    }
}
