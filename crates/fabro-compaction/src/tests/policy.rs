use super::*;

#[track_caller]
fn check(policy: Policy, moment: Moment, estimated: u64, window: Option<u64>, expect: &str) {
    let usage = WindowUse { estimated_tokens: estimated, context_window_size: window };
    let reason = should_compact(&policy, moment, usage).map_or("no", Reason::as_str);
    assert_eq!(reason, expect);
}

const OVERFLOW: Moment = Moment::Overflow { retried: false };

#[test]
fn the_default_looks_after_an_answer_at_four_fifths_of_the_window() {
    let policy = Policy::default();
    assert_eq!(policy, Policy::fabro());
    assert_eq!(policy.keep_recent, 6);
    check(policy, Moment::AfterAnswer, 8_000, Some(10_000), "no");
    check(policy, Moment::AfterAnswer, 8_001, Some(10_000), "threshold");
    check(policy, Moment::BeforeCall, 9_999, Some(10_000), "no");
    check(policy, Moment::AfterAnswer, u64::MAX, None, "no");
    check(policy, Moment::AfterAnswer, u64::MAX, Some(u64::MAX), "threshold");
    check(policy, Moment::AfterAnswer, 1, Some(0), "threshold");
}

#[test]
fn the_harness_looks_before_a_call_at_the_window_without_its_reserve() {
    let policy = Policy::harness();
    assert_eq!(policy.keep_recent, 20);
    check(policy, Moment::BeforeCall, 15_904, Some(20_000), "no");
    check(policy, Moment::BeforeCall, 15_905, Some(20_000), "threshold");
    check(policy, Moment::AfterAnswer, 20_000, Some(20_000), "no");
    check(policy, Moment::BeforeCall, u64::MAX, None, "no");
    // A reserve that would leave nothing counts as half of the window.
    check(policy, Moment::BeforeCall, 2_048, Some(4_096), "no");
    check(policy, Moment::BeforeCall, 2_049, Some(4_096), "threshold");
}

#[test]
fn a_size_that_is_given_needs_no_window() {
    let policy =
        Policy::harness().with(&Overrides { compact_at_tokens: Some(500), ..<_>::default() });
    check(policy, Moment::BeforeCall, 500, None, "no");
    check(policy, Moment::BeforeCall, 501, None, "threshold");
    check(policy, Moment::BeforeCall, 501, Some(100_000), "threshold");
}

#[test]
fn an_overflow_is_answered_once() {
    for policy in [Policy::fabro(), Policy::harness()] {
        check(policy, OVERFLOW, 10, None, "overflow");
        check(policy, OVERFLOW, 10, Some(100), "overflow");
        check(policy, Moment::Overflow { retried: true }, 10, Some(100), "no");
        let off = Overrides { recover_from_overflow: Some(false), ..<_>::default() };
        check(policy.with(&off), OVERFLOW, 10, Some(100), "no");
    }
    let never = Policy { trigger: Trigger::Never, ..Policy::fabro() };
    check(never, OVERFLOW, 10, Some(100), "overflow");
    check(never, Moment::AfterAnswer, 100, Some(100), "no");
}

#[test]
fn strict_does_nothing_until_it_is_enabled() {
    let strict = Policy::strict();
    assert!(!strict.is_automatic());
    for moment in [Moment::BeforeCall, Moment::AfterAnswer, OVERFLOW] {
        check(strict, moment, 100_000, Some(100), "no");
    }
    let opted_in = strict.with(&Overrides { enabled: Some(true), ..<_>::default() });
    assert_eq!(opted_in, Policy::harness());
}

#[test]
fn overrides_win_and_absent_ones_change_nothing() {
    assert_eq!(Policy::fabro().with(&Overrides::default()), Policy::fabro());
    let overrides: Overrides = serde_json::from_value(json!({
        "enabled": true,
        "compactAtTokens": 9_000,
        "reserveTokens": 8_192,
        "compactionKeepRecentEntries": 30,
        "recoverContextOverflow": false,
        "generateSummary": false,
    }))
    .unwrap();
    let policy = Policy::strict().with(&overrides);
    let trigger = Trigger::BeforeCall { compact_at_tokens: Some(9_000), reserve_tokens: 8_192 };
    assert_eq!(
        policy,
        Policy {
            enabled: true,
            trigger,
            keep_recent: 30,
            recover_from_overflow: false,
            generate_summary: false,
            replaying: false,
        }
    );
    // Numbers of tokens are about the moment before a call; what was set there stays.
    let reserve = Overrides { reserve_tokens: Some(1), ..<_>::default() };
    let changed = Trigger::BeforeCall { compact_at_tokens: Some(9_000), reserve_tokens: 1 };
    assert_eq!(policy.with(&reserve).trigger, changed);
    let fresh = Trigger::BeforeCall { compact_at_tokens: None, reserve_tokens: 1 };
    assert_eq!(Policy::fabro().with(&reserve).trigger, fresh);
}

#[test]
fn settings_are_read_under_all_their_names() {
    for (names, keep, recover) in [
        (json!({"keep_recent_entries": 3, "recover_from_overflow": false}), 3, false),
        (json!({"keepRecentEntries": 4, "recoverFromOverflow": true}), 4, true),
    ] {
        let overrides: Overrides = serde_json::from_value(names).unwrap();
        assert_eq!(overrides.keep_recent_entries, Some(keep));
        assert_eq!(overrides.recover_from_overflow, Some(recover));
    }
    assert!(serde_json::from_value::<Overrides>(json!({"keep": 3})).is_err());
    let policy: Policy =
        serde_json::from_value(json!({"trigger": {"before_call": {}}, "keep_recent": 20})).unwrap();
    assert_eq!(policy, Policy::harness());
    let text = serde_json::to_string(&Policy::strict()).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), Policy::strict());
}

#[test]
fn an_automatic_policy_that_is_replayed_has_a_warning() {
    let replaying = |policy: Policy| Policy { replaying: true, ..policy }.replay_warning();
    assert!(replaying(Policy::fabro()).is_some());
    assert!(replaying(Policy::harness()).is_some());
    assert!(replaying(Policy::strict()).is_none());
    assert!(Policy::fabro().replay_warning().is_none());
}

#[test]
fn a_window_is_nearly_full_over_four_fifths() {
    let warning = |estimated_tokens, context_window_size| {
        WindowUse { estimated_tokens, context_window_size }.warning()
    };
    assert_eq!(warning(8_000, Some(10_000)), None);
    assert_eq!(warning(8_000, None), None);
    let over = warning(8_150, Some(10_000)).unwrap();
    assert_eq!(
        serde_json::to_value(over).unwrap(),
        json!({"estimated_tokens": 8150, "context_window_size": 10000, "usage_percent": 81})
    );
    assert_eq!(warning(u64::MAX, Some(1)).unwrap().usage_percent, u64::MAX);
}

#[test]
fn only_new_messages_are_counted() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counting(Arc<AtomicUsize>);

    impl fabro_tokens::CountTokens for Counting {
        fn count(&self, text: &str) -> usize {
            self.0.fetch_add(1, Ordering::Relaxed);
            text.len()
        }
    }

    let counted = Arc::new(AtomicUsize::new(0));
    let mut meter = Meter::new(Counting(counted.clone()));
    meter.set_system_prompt("12345");
    let mut turns = vec![user("123"), assistant("1").call("x", "ls", json!({"a": 1}))];
    meter.track(&turns);
    assert_eq!(meter.tokens(), 5 + 3 + 1 + 2 + 7);
    turns.push(result("x", "1234"));
    let before = counted.load(Ordering::Relaxed);
    meter.track(&turns);
    assert_eq!(counted.load(Ordering::Relaxed) - before, 2);
    assert_eq!(meter.tokens(), 22);
    turns.truncate(1);
    meter.track(&turns);
    assert_eq!(meter.tokens(), 8);
    meter.set_system_prompt("");
    assert_eq!(meter.tokens(), 3);
}

#[test]
fn a_compaction_that_is_not_due_says_why() {
    let check = |policy: Policy, moment, window, expected| {
        let usage = WindowUse { estimated_tokens: 70, context_window_size: window };
        assert_eq!(should_compact(&policy, moment, usage), Err(expected));
    };
    let fabro = Policy::fabro();
    let harness = Policy::harness();
    check(Policy::strict(), Moment::BeforeCall, Some(10), NotDue::Disabled);
    check(fabro, Moment::BeforeCall, Some(10), NotDue::OtherMoment(fabro.trigger));
    check(harness, Moment::AfterAnswer, Some(10), NotDue::OtherMoment(harness.trigger));
    check(fabro, Moment::Overflow { retried: true }, Some(10), NotDue::NoRetry);
    check(fabro, Moment::AfterAnswer, None, NotDue::WindowUnknown);
    let below = NotDue::BelowThreshold { tokens: 70, threshold: 80 };
    check(fabro, Moment::AfterAnswer, Some(100), below);
}
