//! One narrow trait for language models, with simulated and scripted ones.
