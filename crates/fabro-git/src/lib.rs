//! What a git work tree knows about its files: which ones changed between two moments.
