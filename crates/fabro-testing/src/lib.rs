//! Test doubles of the workspace: clocks, scripted handlers, check helpers.
