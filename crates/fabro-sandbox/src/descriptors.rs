//! How many files, pipes and sockets this process may have open at once.

use std::error::Error;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ExecError;

/// What a driver needs besides its stages: the store, its event loop, terminals, connections that
/// come and go.
const OWN: u64 = 24;

/// What one stage needs: the pipes and logs of a program, the pipes of another while it starts, a
/// connection.
const OF_A_STAGE: u64 = 12;

/// Raises the soft limit of open files to the hard one, as far as the system lets it. Programs that
/// are started afterwards have that limit too.
pub fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // The lower limit is kept where the system refuses: fewer stages run at once.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// How many stages that open files can run at once within the limit of open files, at least one.
pub fn stages_within_limit() -> usize {
    within(getrlimit(Resource::Nofile).current, open_now())
}

fn within(limit: Option<u64>, open: u64) -> usize {
    let free = limit.unwrap_or(u64::MAX).saturating_sub(open.saturating_add(OWN));
    usize::try_from(free / OF_A_STAGE).unwrap_or(usize::MAX).max(1)
}

fn open_now() -> u64 {
    std::fs::read_dir("/dev/fd").map_or(OWN, |all| all.count() as u64)
}

/// Whether the system has run out of descriptors, processes or memory, or a machine was lost: what failed can work later.
pub fn is_exhausted(error: &(dyn Error + 'static)) -> bool {
    const LACKS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if matches!(error.downcast_ref(), Some(ExecError::Lost { .. })) {
            return true;
        }
        if code.is_some_and(|code| LACKS.contains(&Errno::from_raw_os_error(code))) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_share_what_the_driver_leaves() {
        let check = |limit, open, expect| assert_eq!(within(limit, open), expect);
        check(Some(64), 16, 2);
        check(Some(64), 60, 1);
        check(Some(0), 10, 1);
        check(Some(1_024), 16, 82);
        check(None, u64::MAX, 1);
    }

    #[test]
    fn a_lack_of_resources_is_not_a_wrong_request() {
        let check = |code: Errno, expect| {
            let source = io::Error::from_raw_os_error(code.raw_os_error());
            let error = ExecError::Start { program: "bash".to_owned(), source };
            assert_eq!(is_exhausted(&error), expect);
        };
        check(Errno::MFILE, true);
        check(Errno::NFILE, true);
        check(Errno::AGAIN, true);
        check(Errno::NOENT, false);
        check(Errno::ACCESS, false);
    }
}
