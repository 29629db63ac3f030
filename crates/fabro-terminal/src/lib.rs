//! What a terminal shows: live progress of a run, tables, findings in their source.
