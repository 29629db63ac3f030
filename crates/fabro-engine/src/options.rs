/// How one driver runs a plan.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// A token limit besides the workflow's own; the lower one counts.
    pub max_tokens: Option<u64>,
}
