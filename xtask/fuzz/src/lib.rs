//! What the fuzz targets share.

/// The longest input that a target reads, in bytes: beyond it a slow input says nothing about how
/// time grows. `cargo fuzz run TARGET -- -timeout=5 -max_len=65536` reports what takes longer.
pub const MAX_INPUT: usize = 1 << 16;
