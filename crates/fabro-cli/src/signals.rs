//! Signals that the parent process blocked or ignored. Both survive `exec`, and both would break what Fabro does: a
//! blocked SIGTERM makes a driver deaf to cancellation, and with SIGCHLD ignored the system discards how a child ended.

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Unblocks all signals, before another thread exists: threads and children inherit the mask.
pub fn unblock() {
    // It fails for an invalid operation only.
    let _ = SigSet::empty().thread_set_mask();
}

/// Replaces an ignored SIGCHLD by a handler, so that the status of children can be read. Children get the default:
/// `exec` resets handlers. A handler stays installed; the runtime must be running.
pub fn keep_child_status() -> std::io::Result<Signal> {
    signal(SignalKind::child())
}
