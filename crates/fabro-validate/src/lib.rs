//! Checks a workflow before it runs: one lint a file, data flow included.
