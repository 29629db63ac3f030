//! Keeps long conversations within a model's context window: policy, plan, summary, report.
