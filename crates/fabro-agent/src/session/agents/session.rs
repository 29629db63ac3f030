//! What a session does about its subagents when it resumes and when it ends.

use fabro_events::EventBody;
use tokio_util::sync::CancellationToken;

use crate::{Session, SessionError};

impl Session {
    /// Pauses, stops or closes the agents of the session when its turns have ended.
    pub(crate) async fn close(
        &mut self,
        end: Result<(), SessionError>,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let agents = self.agents.as_ref();
        match (&end, agents) {
            (_, None) => {}
            // Nothing more is recorded of a session that is ended.
            (Err(SessionError::Canceled | SessionError::Journal(_)), Some(agents)) => {
                agents.stop_all().await;
            }
            (Err(SessionError::Budget), Some(agents)) => {
                let is_ended = tokio::select! {
                    biased;
                    () = cancel.cancelled() => true,
                    () = agents.wait_until_idle() => false,
                };
                if is_ended {
                    agents.stop_all().await;
                    return Err(SessionError::Canceled);
                }
            }
            (_, Some(agents)) => {
                let closed = agents.close_all().await;
                if end.is_ok() {
                    closed?;
                }
            }
        }
        if !matches!(end, Ok(()) | Err(SessionError::Canceled | SessionError::Journal(_))) {
            self.flush().await?;
        }
        end
    }

    /// Resumes the agents of the session, and waits for those that it waited for.
    pub(crate) async fn resume_agents_and_wait(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        self.resume_agents(cancel).await?;
        if self.agents.is_none() {
            return Ok(());
        }
        match self.wait_again(cancel).await {
            Ok(()) => Ok(()),
            end => self.close(end, cancel).await,
        }
    }

    pub(crate) async fn resume_agents(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let Some(agents) = &self.agents else { return Ok(()) };
        let lost = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(SessionError::Canceled),
            lost = agents.resume() => lost,
        };
        self.closed(lost);
        Ok(())
    }

    /// Notes agents that have ended.
    pub(crate) fn closed(&mut self, agents: impl IntoIterator<Item = String>) {
        for agent_id in agents {
            self.note(EventBody::AgentSubClosed { agent_id });
        }
    }
}
