//! A token budget that strings are charged to, one after the other.

use fabro_tokens::CountTokens;

use crate::text::{clean, close_fence};

/// While everything fits by its size in bytes (a token has at least one), no token is counted, so that
/// a short preamble loads no vocabulary.
///
/// The sum of the costs is close to the cost of the whole, but not exact: the caller counts the whole
/// in the end.
pub(crate) struct Budget<'a> {
    counter: &'a dyn CountTokens,
    limit: usize,
    used: usize,
    section_limit: usize,
    section_used: usize,
    /// The accepted text, while bytes are counted.
    taken: String,
    section_start: usize,
    exact: bool,
    /// Bytes that went through the counter.
    work: usize,
}

/// More bytes a token than any text has, except runs of whitespace and the like.
pub(crate) const BYTES_PER_TOKEN: usize = 16;

impl<'a> Budget<'a> {
    pub(crate) fn new(limit: usize, counter: &'a dyn CountTokens) -> Self {
        Self {
            counter,
            limit,
            used: 0,
            section_limit: limit,
            section_used: 0,
            taken: String::new(),
            section_start: 0,
            exact: false,
            work: 0,
        }
    }

    /// Starts a section with a token limit of its own.
    pub(crate) fn section(&mut self, limit: usize) {
        self.section_limit = limit;
        self.section_used = 0;
        self.section_start = self.taken.len();
    }

    /// Charges the text if it costs at most `most` and there is room for it.
    pub(crate) fn take(&mut self, text: &str, most: usize) -> bool {
        if !self.exact {
            if self.has_room(text.len(), most) {
                self.taken.push_str(text);
                self.spend(text.len());
                return true;
            }
            self.exact = true;
            self.used = self.counter.count(&self.taken);
            self.section_used = self.counter.count(&self.taken[self.section_start..]);
            self.taken = String::new();
        }
        let room = most.min(self.limit.saturating_sub(self.used));
        if text.len() > room.saturating_mul(BYTES_PER_TOKEN) {
            return false;
        }
        self.work += text.len();
        let cost = self.counter.count(text);
        let has_room = self.has_room(cost, most);
        if has_room {
            self.spend(cost);
        }
        has_room
    }

    /// Whether so much was counted that only short strings should be tried from now on.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.work > self.limit.saturating_mul(64)
    }

    fn has_room(&self, cost: usize, most: usize) -> bool {
        cost <= most
            && self.used.saturating_add(cost) <= self.limit
            && self.section_used.saturating_add(cost) <= self.section_limit
    }

    fn spend(&mut self, cost: usize) {
        self.used += cost;
        self.section_used += cost;
    }
}

/// The start of a text, of at most `limit` tokens (and 16 bytes a token), and whether it was
/// truncated.
pub(crate) fn cut_to_tokens(text: &str, limit: usize, counter: &dyn CountTokens) -> (String, bool) {
    let prefix = &text[..text.floor_char_boundary(limit.saturating_mul(BYTES_PER_TOKEN))];
    let mut kept = clean(prefix).into_owned();
    let mut cut = prefix.len() < text.len();
    while !counter.fits(&kept, limit) {
        cut = true;
        let tokens = counter.count(&kept).max(1);
        // At least an eighth less each time, so that this ends with any counter.
        let fair = (kept.len() as u128 * limit as u128 / tokens as u128) as usize;
        kept.truncate(kept.floor_char_boundary(fair.min(kept.len() - kept.len().div_ceil(8))));
        if kept.is_empty() {
            break;
        }
    }
    (kept, cut)
}

/// The same for a Markdown text: truncated after a whole line, its fences closed.
pub(crate) fn cut_markdown(text: &str, limit: usize, counter: &dyn CountTokens) -> (String, bool) {
    let (mut kept, cut) = cut_to_tokens(text, limit, counter);
    if cut {
        kept.truncate(kept.rfind('\n').unwrap_or(kept.len()));
        close_fence(&mut kept);
    }
    (kept, cut)
}
