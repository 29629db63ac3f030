use std::collections::BTreeSet;

use fabro_types::BlobRef;

/// Adds the blobs that a text names, wherever in it.
pub(super) fn collect(text: &[u8], refs: &mut BTreeSet<BlobRef>) {
    const PREFIX: &[u8] = b"blob://sha256/";
    const HEX: usize = 64;
    let mut rest = text;
    // Colons are rare enough in texts, and `blob:` after one rarer.
    while let Some(colon) = rest.iter().position(|byte| *byte == b':') {
        let (before, after) = rest.split_at(colon);
        rest = &after[1..];
        if !before.ends_with(b"blob") || !after.starts_with(&PREFIX[4..]) {
            continue;
        }
        let name = after.get(PREFIX.len() - 4..PREFIX.len() - 4 + HEX).unwrap_or_default();
        let blob = std::str::from_utf8(name).ok().and_then(|hex| BlobRef::from_hex(hex).ok());
        refs.extend(blob);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_wherever_they_are() {
        let (one, two) = (BlobRef::of(b"1"), BlobRef::of(b"2"));
        let text = format!("{{\"a\":\"{one}\",\"b\":\"see {two}.\"}} blob://sha256/12 blob:{one}");
        let mut refs = BTreeSet::new();
        collect(text.as_bytes(), &mut refs);
        assert_eq!(refs, BTreeSet::from([one, two]));
        collect(format!("{one}").as_bytes(), &mut refs);
        collect(&one.to_string().as_bytes()[..77], &mut refs);
        assert_eq!(refs.len(), 2);
    }
}
