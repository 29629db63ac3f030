//! The preamble of a prompt: what happened in earlier stages, within a guaranteed token ceiling.
