/// Lays out text while it is read: the tags around the words determine the whitespace.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    out: String,
    /// The line ends that are needed before the next text.
    lines: usize,
    /// Whether there was whitespace since the last word.
    space: bool,
    /// The mark of an item or a heading, before its first word.
    prefix: String,
    /// How many elements with preformatted whitespace are open.
    code: usize,
    /// Preformatted text has just begun: its first line break is not part of it.
    code_begins: bool,
    link: Option<Link>,
    full: bool,
}

#[derive(Debug)]
struct Link {
    to: String,
    /// Where its text begins in the output; `None` before the first word.
    start: Option<usize>,
}

/// More than this many bytes are not written. It takes a page made for it to get there.
const MAX_BYTES: usize = 4 << 20;

/// Deeper lists are not indented further.
const MAX_INDENT: usize = 8;

impl Layout {
    /// The text, and whether its end is left out.
    pub(crate) fn finish(mut self) -> (String, bool) {
        self.end_link();
        if self.code > 0 {
            self.code = 1;
            self.end_code();
        }
        self.out.truncate(self.out.trim_end().len());
        (self.out, self.full)
    }

    pub(crate) fn text(&mut self, text: &str) {
        if self.code > 0 {
            return self.fixed(text);
        }
        let mut rest = text;
        while !rest.is_empty() {
            let word = rest.trim_start_matches(char::is_whitespace);
            self.space |= word.len() < rest.len();
            let end = word.find(char::is_whitespace).unwrap_or(word.len());
            if end > 0 {
                self.word(&word[..end]);
            }
            rest = &word[end..];
        }
    }

    /// At least this many line ends before the next text.
    pub(crate) fn new_lines(&mut self, lines: usize) {
        self.lines = self.lines.max(lines);
    }

    /// One more line end.
    pub(crate) fn line_break(&mut self) {
        self.lines = (self.lines + 1).min(2);
    }

    pub(crate) fn rule(&mut self) {
        self.word("---");
        self.lines = 2;
    }

    pub(crate) fn heading(&mut self, level: usize) {
        if !self.prefix.contains('#') {
            self.prefix.push_str(&"#".repeat(level));
            self.prefix.push(' ');
        }
    }

    pub(crate) fn item(&mut self, depth: usize, mark: &str) {
        self.prefix = "  ".repeat(depth.saturating_sub(1).min(MAX_INDENT)) + mark;
    }

    /// The item or heading ends, perhaps without a word.
    pub(crate) fn end_item(&mut self) {
        self.prefix.clear();
    }

    pub(crate) fn start_code(&mut self) {
        if self.code == 0 {
            self.end_link();
            self.word("```");
            self.lines = 1;
            self.code_begins = true;
        }
        self.code += 1;
    }

    pub(crate) fn end_code(&mut self) {
        if self.code == 1 {
            self.lines = 1;
            self.code_begins = false;
            self.word("```");
            self.lines = 2;
        }
        self.code = self.code.saturating_sub(1);
    }

    /// A link begins, and another one that was open ends.
    pub(crate) fn start_link(&mut self, to: Option<String>) {
        self.end_link();
        // In code a link would look like a part of it.
        self.link = to.filter(|_| self.code == 0).map(|to| Link { to, start: None });
    }

    pub(crate) fn end_link(&mut self) {
        let Some(Link { to, start: Some(start) }) = self.link.take() else { return };
        let text = &self.out[start..];
        if text == to || self.full {
            return;
        }
        if text.contains('\n') {
            self.out.extend([" (", &to, ")"]);
        } else {
            self.out.insert(start, '[');
            self.out.extend(["](", &to, ")"]);
        }
    }

    fn word(&mut self, word: &str) {
        if self.make_room(word.len()) {
            if self.lines == 0 && self.space && !self.out.ends_with('\n') && !self.out.is_empty() {
                self.out.push(' ');
            }
            self.begin();
            self.out.push_str(word);
        }
    }

    fn fixed(&mut self, text: &str) {
        let begins = std::mem::take(&mut self.code_begins);
        let text = text.strip_prefix('\n').filter(|_| begins).unwrap_or(text);
        if !text.is_empty() && self.make_room(text.len()) {
            self.begin();
            self.out.push_str(text);
        }
    }

    /// Writes the line ends and the prefix before a word.
    fn begin(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if !self.out.is_empty() {
            let there = self.out.bytes().rev().take(lines).take_while(|it| *it == b'\n').count();
            self.out.extend(std::iter::repeat_n('\n', lines - there));
        }
        self.out.push_str(&self.prefix);
        self.prefix.clear();
        self.space = false;
        if let Some(link) = &mut self.link {
            link.start.get_or_insert(self.out.len());
        }
    }

    fn make_room(&mut self, bytes: usize) -> bool {
        self.full |= self.out.len() + bytes > MAX_BYTES;
        !self.full
    }
}
