//! The workflow engine: a pure state machine over an append-only log, and the driver that runs it.
