use std::collections::BTreeSet;
use std::sync::LazyLock;

use fabro_types::BlobRef;
use memchr::memmem::Finder;

const PREFIX: &str = "blob://sha256/";

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PREFIX));

const HEX: usize = 64;

/// Adds the blobs that a text names, wherever in it.
pub(super) fn collect(text: &[u8], refs: &mut BTreeSet<BlobRef>) {
    refs.extend(FINDER.find_iter(text).filter_map(|at| name(text, at)));
}

/// Adds the blobs that JSON text refers to: a reference is a whole string, and a name inside of one is text.
pub(super) fn collect_strings(json: &[u8], refs: &mut BTreeSet<BlobRef>) {
    // The quote of a string in a string is escaped.
    let begins = |at: usize| json[..at].ends_with(b"\"") && !json[..at].ends_with(b"\\\"");
    let ends = |at: usize| json.get(at + PREFIX.len() + HEX) == Some(&b'"');
    let whole = FINDER.find_iter(json).filter(|at| begins(*at) && ends(*at));
    refs.extend(whole.filter_map(|at| name(json, at)));
}

/// The blob whose name is at this place.
fn name(text: &[u8], at: usize) -> Option<BlobRef> {
    let start = at + PREFIX.len();
    let hex = std::str::from_utf8(text.get(start..start + HEX)?).ok()?;
    BlobRef::from_hex(hex).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_wherever_they_are() {
        let one = BlobRef::of(b"1");
        let two = BlobRef::of(b"2");
        let text = format!("{{\"a\":\"{one}\",\"b\":\"see {two}.\"}} blob://sha256/12 blob:{one}");
        let mut refs = BTreeSet::new();
        collect(text.as_bytes(), &mut refs);
        assert_eq!(refs, BTreeSet::from([one, two]));
        collect(format!("{one}").as_bytes(), &mut refs);
        collect(&one.to_string().as_bytes()[..77], &mut refs);
        assert_eq!(refs.len(), 2);
    }

    #[test]
    fn a_reference_is_a_whole_string() {
        let [one, two, three] = [b"1", b"2", b"3"].map(|bytes| BlobRef::of(bytes));
        let json = serde_json::json!({"a": one, "b": [two], "c": format!("in \"{three}\""), "d": format!("{three}.")});
        let mut refs = BTreeSet::new();
        collect_strings(json.to_string().as_bytes(), &mut refs);
        assert_eq!(refs, BTreeSet::from([one, two]));
    }
}
