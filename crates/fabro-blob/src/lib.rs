//! Content-addressed blobs: in memory, or in a directory that survives a crash.
