use serde::{Deserialize, Serialize};

/// When a conversation is compacted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "settings that do not depend on each other")]
pub struct Policy {
    /// Whether anything is compacted automatically.
    pub enabled: bool,
    /// When the size of the conversation alone is a reason.
    pub trigger: Trigger,
    /// How many of the last messages stay as they are. More stay where a call would otherwise
    /// lose its result.
    pub keep_recent: usize,
    /// Whether a conversation that the model refused as too long is compacted and retried.
    pub recover_from_overflow: bool,
    /// Whether a model writes the summary, if there is one. Otherwise it is put together from the
    /// messages alone.
    pub generate_summary: bool,
    /// Whether the runtime replays what was decided before. A summary by a model is not the same
    /// the second time; see [`replay_warning`](Self::replay_warning).
    pub replaying: bool,
}

/// When the size of a conversation is a reason to compact it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// After an answer of the model.
    AfterAnswer {
        /// More than this part of the model's window is taken, in percent.
        percent: u8,
    },
    /// Before the model is called.
    BeforeCall {
        /// More than this many tokens are taken. Absent: the window without the reserve.
        #[serde(default)]
        compact_at_tokens: Option<u64>,
        /// What has to stay free of the window, in tokens; counts as half of the window where it
        /// is more.
        #[serde(default = "default_reserve")]
        reserve_tokens: u64,
    },
    /// Never: only an overflow is.
    Never,
}

/// What stays free of the window by default, in tokens.
pub const DEFAULT_RESERVE_TOKENS: u64 = 4_096;

/// From more than this part of the window on there is a warning, in percent.
pub const WARNING_PERCENT: u64 = 80;

const fn default_reserve() -> u64 {
    DEFAULT_RESERVE_TOKENS
}

impl Policy {
    /// After an answer, when more than 80 % of the window is taken, and on overflow; keeps 6
    /// messages. The default.
    pub const fn fabro() -> Self {
        Self {
            enabled: true,
            trigger: Trigger::AfterAnswer { percent: 80 },
            keep_recent: 6,
            recover_from_overflow: true,
            generate_summary: true,
            replaying: false,
        }
    }

    /// Before a call, when less than 4,096 tokens of the window are free, and on overflow; keeps 20
    /// messages.
    pub const fn harness() -> Self {
        Self {
            trigger: Trigger::BeforeCall {
                compact_at_tokens: None,
                reserve_tokens: DEFAULT_RESERVE_TOKENS,
            },
            keep_recent: 20,
            ..Self::fabro()
        }
    }

    /// Nothing by itself. Once `enabled`, it is [`harness`](Self::harness).
    pub const fn strict() -> Self {
        Self { enabled: false, ..Self::harness() }
    }

    /// The policy with what `overrides` say in the place of its own settings. A number of tokens
    /// belongs to [`Trigger::BeforeCall`], so it makes that the trigger.
    pub fn with(&self, overrides: &Overrides) -> Self {
        let own = match self.trigger {
            Trigger::BeforeCall { compact_at_tokens, reserve_tokens } => {
                (compact_at_tokens, reserve_tokens)
            }
            Trigger::AfterAnswer { .. } | Trigger::Never => (None, DEFAULT_RESERVE_TOKENS),
        };
        let names_tokens =
            overrides.compact_at_tokens.is_some() || overrides.reserve_tokens.is_some();
        let trigger = if names_tokens {
            Trigger::BeforeCall {
                compact_at_tokens: overrides.compact_at_tokens.or(own.0),
                reserve_tokens: overrides.reserve_tokens.unwrap_or(own.1),
            }
        } else {
            self.trigger
        };
        Self {
            enabled: overrides.enabled.unwrap_or(self.enabled),
            trigger,
            keep_recent: overrides.keep_recent_entries.unwrap_or(self.keep_recent),
            recover_from_overflow: overrides
                .recover_from_overflow
                .unwrap_or(self.recover_from_overflow),
            generate_summary: overrides.generate_summary.unwrap_or(self.generate_summary),
            replaying: self.replaying,
        }
    }

    /// Whether anything can be compacted automatically.
    pub const fn is_automatic(&self) -> bool {
        self.enabled && (self.recover_from_overflow || !matches!(self.trigger, Trigger::Never))
    }

    /// The warning for the user when a session with this policy starts: that it is automatic while
    /// the runtime replays.
    pub const fn replay_warning(&self) -> Option<&'static str> {
        if self.replaying && self.is_automatic() {
            Some(
                "automatic compaction does not repeat itself exactly when the run is replayed; \
                 disable it, or choose the strict policy",
            )
        } else {
            None
        }
    }

    /// The size from which on the trigger holds, in tokens: a conversation of more is shortened.
    /// `None` when its size alone is no reason, or the window would have to be known.
    pub fn threshold(&self, context_window_size: Option<u64>) -> Option<u64> {
        match self.trigger {
            Trigger::AfterAnswer { percent } => {
                let part = u128::from(context_window_size?) * u128::from(percent) / 100;
                Some(u64::try_from(part).unwrap_or(u64::MAX))
            }
            Trigger::BeforeCall { compact_at_tokens: Some(tokens), .. } => Some(tokens),
            Trigger::BeforeCall { compact_at_tokens: None, reserve_tokens } => {
                context_window_size.map(|window| window - reserve_tokens.min(window / 2))
            }
            Trigger::Never => None,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::fabro()
    }
}

/// Settings for one call, or of a user, over those of a policy. Absent ones change nothing.
///
/// In JSON and TOML the names are those of the fields, or the same in camel case;
/// `compactionKeepRecentEntries` and `recoverContextOverflow` are understood too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// For [`Policy::enabled`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// For the trigger before a call: more than this many tokens are taken.
    #[serde(alias = "compactAtTokens", skip_serializing_if = "Option::is_none")]
    pub compact_at_tokens: Option<u64>,
    /// For the trigger before a call: what has to stay free of the window, in tokens.
    #[serde(alias = "reserveTokens", skip_serializing_if = "Option::is_none")]
    pub reserve_tokens: Option<u64>,
    /// For [`Policy::keep_recent`].
    #[serde(
        alias = "keepRecentEntries",
        alias = "compactionKeepRecentEntries",
        alias = "compaction_keep_recent_entries",
        skip_serializing_if = "Option::is_none"
    )]
    pub keep_recent_entries: Option<usize>,
    /// For [`Policy::recover_from_overflow`].
    #[serde(
        alias = "recoverFromOverflow",
        alias = "recoverContextOverflow",
        alias = "recover_context_overflow",
        skip_serializing_if = "Option::is_none"
    )]
    pub recover_from_overflow: Option<bool>,
    /// For [`Policy::generate_summary`].
    #[serde(alias = "generateSummary", skip_serializing_if = "Option::is_none")]
    pub generate_summary: Option<bool>,
}

/// A point of a session at which its conversation may be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The model is about to be called.
    BeforeCall,
    /// The model has answered.
    AfterAnswer,
    /// The model refused the conversation as too long.
    Overflow {
        /// This call has been retried already.
        retried: bool,
    },
    /// The caller asks for it, for any size and policy.
    Manual,
}

/// Why a conversation is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It has grown over the threshold.
    Threshold,
    /// The model refused it.
    Overflow,
    /// The caller asked for it.
    Manual,
}

impl Reason {
    /// `threshold`, `overflow` or `manual`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Overflow => "overflow",
            Self::Manual => "manual",
        }
    }
}

/// How full a model's window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUse {
    /// What the conversation is estimated to take, in tokens.
    pub estimated_tokens: u64,
    /// What the model takes, in tokens; absent when it is not known.
    pub context_window_size: Option<u64>,
}

impl WindowUse {
    /// The taken part of the window, in whole percent; `None` when the window is not known.
    pub fn percent(&self) -> Option<u64> {
        let window = u128::from(self.context_window_size?.max(1));
        let percent = u128::from(self.estimated_tokens) * 100 / window;
        Some(u64::try_from(percent).unwrap_or(u64::MAX))
    }

    /// The warning that the window is nearly full: more than [`WARNING_PERCENT`] of it is taken.
    pub fn warning(&self) -> Option<WindowWarning> {
        let context_window_size = self.context_window_size?;
        let taken = u128::from(self.estimated_tokens) * 100;
        let is_over = taken > u128::from(context_window_size) * u128::from(WARNING_PERCENT);
        is_over.then(|| WindowWarning {
            estimated_tokens: self.estimated_tokens,
            context_window_size,
            usage_percent: self.percent().unwrap_or(u64::MAX),
        })
    }
}

/// A window that is nearly full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WindowWarning {
    /// What the conversation is estimated to take, in tokens.
    pub estimated_tokens: u64,
    /// What the model takes, in tokens.
    pub context_window_size: u64,
    /// The first as a part of the second, in whole percent.
    pub usage_percent: u64,
}

/// Why a conversation is not compacted at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDue {
    /// The policy is not `enabled`; only [`Moment::Manual`] compacts.
    Disabled,
    /// The policy's trigger belongs to another moment.
    OtherMoment(Trigger),
    /// The policy does not recover from an overflow, or this call has been retried already.
    NoRetry,
    /// The threshold is a part of the window, and the size of the window is not known.
    WindowUnknown,
    /// The conversation takes no more than the threshold.
    BelowThreshold {
        /// What it is estimated to take, in tokens.
        tokens: u64,
        /// What it may take, in tokens.
        threshold: u64,
    },
}

/// Why to compact the conversation now. After an overflow the caller compacts it and retries.
///
/// # Errors
///
/// Why not to compact it now.
pub fn should_compact(policy: &Policy, moment: Moment, usage: WindowUse) -> Result<Reason, NotDue> {
    if moment == Moment::Manual {
        return Ok(Reason::Manual);
    }
    if !policy.enabled {
        return Err(NotDue::Disabled);
    }
    match (moment, policy.trigger) {
        (Moment::Overflow { retried }, _) => {
            let recovers = policy.recover_from_overflow && !retried;
            return if recovers { Ok(Reason::Overflow) } else { Err(NotDue::NoRetry) };
        }
        (Moment::BeforeCall, Trigger::BeforeCall { .. })
        | (Moment::AfterAnswer, Trigger::AfterAnswer { .. }) => {}
        (_, trigger) => return Err(NotDue::OtherMoment(trigger)),
    }
    let threshold = policy.threshold(usage.context_window_size).ok_or(NotDue::WindowUnknown)?;
    let tokens = usage.estimated_tokens;
    if tokens > threshold {
        Ok(Reason::Threshold)
    } else {
        Err(NotDue::BelowThreshold { tokens, threshold })
    }
}
