//! Scripts run as real processes, and files on a real disk. Nothing here waits for a time to pass:
//! scripts say through a named pipe when they are ready, and the end of that pipe says when all that
//! held it are gone.

#[cfg(test)]
mod bwrap;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod containers;
mod ends;
#[cfg(test)]
mod files;
mod local;
#[cfg(test)]
mod output;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod server;
#[cfg(test)]
mod setup;
