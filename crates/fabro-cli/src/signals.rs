//! Resets signals that the parent process blocked or ignored. Both survive `exec`: with SIGTERM blocked a driver
//! cannot be canceled, and with SIGCHLD ignored the kernel discards the exit status of children.

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Unblocks all signals. Call it before a thread is started: threads and children inherit the mask.
pub fn unblock() {
    // It fails only for an invalid argument.
    let _ = SigSet::empty().thread_set_mask();
}

/// Installs a SIGCHLD handler, so that exit statuses of children are kept even if SIGCHLD was ignored. Children get
/// the default action, as `exec` resets handlers. Must be called within the runtime; the handler stays installed.
pub fn keep_child_status() -> std::io::Result<Signal> {
    signal(SignalKind::child())
}
