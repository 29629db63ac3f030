//! What a run is driven with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fabro_engine::Clock;
use fabro_events::EventSink;
use fabro_gate::{Interviewer, Unavailable};
use rustix::process::getuid;
use tokio_util::sync::CancellationToken;

/// Milliseconds since 1970 by the system's clock.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The name of the operating system user of this process: from `/etc/passwd`, else from `LOGNAME` or
/// `USER`, else `uid N`.
pub fn os_user() -> String {
    let uid = getuid().as_raw();
    let listed = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_name(&listed, uid)
        // Users of a directory service are not in the file.
        .or_else(|| ["LOGNAME", "USER"].into_iter().find_map(|name| std::env::var(name).ok()))
        .filter(|name| !name.trim().is_empty())
        .unwrap_or_else(|| format!("uid {uid}"))
}

/// The name of the user with this id in the text of `/etc/passwd`.
fn user_name(passwd: &str, uid: u32) -> Option<String> {
    let user = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    user.map(str::to_owned)
}

/// The system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn steady_ms(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// What a run is driven with, besides its settings.
#[derive(Clone)]
pub struct RunServices {
    /// Receives every committed event of the run and of its sub-workflows.
    pub sink: Arc<dyn EventSink>,
    /// Receives warnings that are not recorded.
    pub warn: Arc<dyn Fn(&str) + Send + Sync>,
    /// Answers gates that have no prepared answer.
    pub interviewer: Arc<dyn Interviewer>,
    /// The recorded name of the person who answers the interviewer: [`os_user`] by default.
    pub user: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Cancel it to interrupt the run; it can be resumed.
    pub interrupt: CancellationToken,
    /// The directory of the logins at MCP servers.
    pub logins: Option<PathBuf>,
    /// The `fabro` program, which serves the context of the workflow to agents that are other programs; without
    /// it they have no `get_workflow_context`.
    pub program: Option<PathBuf>,
}

/// Reports nothing, pauses at gates, and uses the system's clock.
impl Default for RunServices {
    fn default() -> Self {
        Self {
            sink: Arc::new(Vec::new()),
            warn: Arc::new(|_| ()),
            interviewer: Arc::new(Unavailable),
            user: os_user(),
            clock: Arc::new(SystemClock::default()),
            interrupt: CancellationToken::new(),
            logins: None,
            program: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_user_names_by_uid() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(user_name(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_name(passwd, 1), None);
    }
}
