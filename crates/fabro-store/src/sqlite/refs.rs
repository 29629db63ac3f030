use std::collections::BTreeSet;
use std::sync::LazyLock;

use fabro_types::BlobRef;
use memchr::memmem::Finder;

const PREFIX: &str = "blob://sha256/";

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PREFIX));

/// Adds the blobs that a text names, wherever in it.
pub(super) fn collect(text: &[u8], refs: &mut BTreeSet<BlobRef>) {
    const HEX: usize = 64;
    for at in FINDER.find_iter(text) {
        let start = at + PREFIX.len();
        let name = text.get(start..start + HEX).unwrap_or_default();
        let blob = std::str::from_utf8(name).ok().and_then(|hex| BlobRef::from_hex(hex).ok());
        refs.extend(blob);
    }
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
}
