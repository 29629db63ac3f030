//! Scripts run as real processes. Nothing here waits for a time to pass: scripts say through a named
//! pipe when they are ready, and the end of that pipe says when all that held it are gone.

mod ends;
mod local;
#[cfg(test)]
mod setup;
