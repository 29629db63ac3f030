//! Other programs as agents: claude, codex and gemini on the command line, and ACP agents.
