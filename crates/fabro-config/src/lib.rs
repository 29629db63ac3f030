//! Settings of a project, a user and a run: run.toml and where the store is.
