//! Cutting texts by their characters.

/// The first `max` characters, with a note on the others.
pub(crate) fn cut_end(text: &str, max: usize) -> String {
    let end = text.char_indices().nth(max).map_or(text.len(), |(at, _)| at);
    if end == text.len() {
        return text.to_owned();
    }
    format!("{}… ({} more characters)", &text[..end], text[end..].chars().count())
}

/// The text in at most `max` characters: two thirds from its beginning, one from its end, and a
/// note on what was between them.
pub(crate) fn cut_middle(text: &str, max: usize) -> String {
    // No text has more characters than bytes, and most are shorter than the limit.
    let length = if text.len() <= max { max } else { text.chars().count() };
    if length <= max {
        return text.to_owned();
    }
    let mark = format!("\n… ({} characters omitted) …\n", length - max);
    // What the mark takes is omitted too, so its number may get a digit more.
    let Some(room) = max.checked_sub(mark.len() + 2) else {
        return text.chars().take(max).collect();
    };
    let mark = format!("\n… ({} characters omitted) …\n", length - room);
    let head = offset(text, room - room / 3);
    let tail = offset(text, length - room / 3);
    format!("{}{mark}{}", &text[..head], &text[tail..])
}

/// A text as one line of at most `max` characters, with a mark where there are more.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    let mut gap = false;
    for character in text.trim().chars() {
        if character.is_whitespace() {
            gap = true;
            continue;
        }
        if length >= max {
            line.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
            length += 1;
        }
        line.push(character);
        length += 1;
    }
    line
}

/// Where the character with this number begins, in bytes.
pub(crate) fn offset(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}
