//! An agent session: turns of a model and tools, durable, compacted, steered.
