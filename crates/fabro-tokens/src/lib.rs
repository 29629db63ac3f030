//! Counting tokens of a text: characters over four, or a real tokenizer behind a feature.
