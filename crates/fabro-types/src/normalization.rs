//! Unicode normalization of file names: `é` is one code point or two.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;

/// The text in Unicode normalization form C.
pub fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    ComposingNormalizerBorrowed::new_nfc().normalize(text)
}

/// Finds a name that equals `name` except for its Unicode normalization (NFC or NFD). Of several
/// names it returns the first in byte order.
///
/// ```
/// let names = ["plain.md", "cafe\u{301}.md"].map(str::to_owned);
/// let found = fabro_types::other_normalization("caf\u{e9}.md", names);
/// assert_eq!(found.as_deref(), Some("cafe\u{301}.md"));
/// ```
pub fn other_normalization(name: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let wanted = nfc(name);
    names.into_iter().filter(|other| nfc(other) == wanted).min()
}
