use std::time::Duration;

/// What a scan and a collection may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes of a file.
    pub file: u64,
    /// The most bytes of the files of one collection.
    pub total: u64,
    /// The most files of one collection.
    pub files: usize,
    /// The most directory entries of one scan.
    pub entries: usize,
    /// How long a scan may take.
    pub time: Duration,
}

/// 10 MiB a file, 50 MiB and 10,000 files a collection; a million entries and two seconds a scan.
impl Default for Limits {
    fn default() -> Self {
        Self {
            file: 10 << 20,
            total: 50 << 20,
            files: 10_000,
            entries: 1_000_000,
            time: Duration::from_secs(2),
        }
    }
}
