//! The keys in the environment and the memory of this process, out of reach of what it starts.

/// Closes `/proc/PID/environ`, `/proc/PID/mem` and debuggers to all programs but those of an
/// administrator; it is called before there are other threads. Programs that this one starts as the
/// administrator lose the privilege to open them.
///
/// Where the system has no such control (not Linux), or refuses it, nothing changes: the environment
/// of agents has no keys in any case.
#[cfg(target_os = "linux")]
pub(crate) fn close() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Only an administrator may do this, and only one has the privilege.
    let _ = remove_capability_from_bounding_set(CapabilitySet::SYS_PTRACE);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn close() {}
