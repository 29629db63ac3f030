//! Questions to a person: options, accelerators, and who answers them.
