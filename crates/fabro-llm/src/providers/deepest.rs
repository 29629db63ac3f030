use std::error::Error;

/// The innermost error says what happened, those around it where.
pub(super) fn deepest(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
