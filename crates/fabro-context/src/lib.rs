//! The context of a run: a persistent key-value map with constant-time forks.
