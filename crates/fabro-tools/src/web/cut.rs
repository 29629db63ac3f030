use crate::limit::end_of;

/// The first `max` characters of a text.
pub(crate) fn head(text: &str, max: usize) -> &str {
    &text[..end_of(text, max)]
}

/// A number as people write it: `1,048,576`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
