/// Those of `known` that `word` is likely a slip of, nearest first, at most three.
pub(crate) fn near_misses<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let word = word.to_lowercase();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|known| (strsim::osa_distance(&word, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, known)| known).collect()
}
