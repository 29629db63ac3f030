//! Tools of an agent that reach the web.
