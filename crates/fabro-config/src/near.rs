/// The members of `known` that `word` may be a typo of, nearest first, at most three.
pub(crate) fn near_misses<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let length = word.chars().count();
    let limit = (length / 3).clamp(1, 3);
    // A word of a megabyte is not a typo, and comparing it would take seconds.
    let comparable = |known: &&str| known.chars().count().abs_diff(length) <= limit;
    let word = word.to_lowercase();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .filter(comparable)
        .map(|known| (strsim::osa_distance(&word, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, known)| known).collect()
}
