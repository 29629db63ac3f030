//! Settings of upstream Fabro that are not ours: what this version does with each of them. The
//! warnings of `run` and `validate` and the report of `doctor` are made from this one table.

/// What this version does with a setting of upstream.
#[derive(Clone, Copy)]
pub(crate) enum Handling {
    /// The same as with this setting of ours.
    Same(&'static str),
    /// Nothing, and nothing is lost. Why.
    NoEffect(&'static str),
    /// Nothing. What is lost, and what to do.
    Lost(&'static str, &'static str),
    /// The file is refused, for a run without it would be dangerous. Why, and what to do.
    Refused(&'static str, &'static str),
    /// The same, unless the user chooses a sandbox for the run.
    OtherSandbox(&'static str, &'static str),
}

use Handling::{Lost, NoEffect, OtherSandbox, Refused, Same};

/// The lint rule of findings about upstream settings.
pub(crate) const RULE: &str = "upstream-setting";

/// The lint rule of findings about sandboxes that only upstream has.
pub(crate) const SANDBOX_RULE: &str = "upstream-sandbox";

const DESCRIBES: &str = "it describes, and no run depends on it";
const OTHER_PROVIDER: &str = "it belongs to another sandbox provider";
const OTHER_PROGRAM: &str = "it is a setting of upstream's own programs";
const IN_A_STAGE: &str = "do it in a command stage before the exit";

/// Every setting of upstream that is not in the schema, by its dotted name; a name stands for all
/// settings below it.
#[rustfmt::skip]
const UPSTREAM: &[(&str, Handling)] = &[
    // Older and other names of what this version has.
    ("version", Same("_version")),
    ("goal", Same("run.goal")),
    ("graph", Same("workflow.graph")),
    ("inputs", Same("run.inputs")),
    ("vars", Same("run.inputs")),
    ("llm.model", Same("run.model.name")),
    ("llm.provider", Same("run.model.provider")),
    ("llm.fallbacks", Same("run.model.fallbacks")),
    ("sandbox", Same("run.sandbox")),
    ("setup", Same("run.prepare")),
    ("artifacts", Same("run.artifacts")),
    ("assets", Same("run.artifacts")),
    ("hooks", Same("run.hooks")),
    ("pull_request", Same("run.pull_request")),
    ("checkpoint", Same("run.checkpoint")),
    ("notifications", Same("run.notifications")),
    ("interviews", Same("run.interviews")),
    ("git", Same("run.git")),
    ("github", Same("run.integrations")),
    ("mcps", Same("run.agent.mcp")),
    ("mcp_servers", Same("run.agent.mcp")),
    ("run.mcps", Same("run.agent.mcp")),
    ("run.agent.mcps", Same("run.agent.mcp")),
    ("run.agent.mcp.NAME.startup_timeout_secs", Same("run.agent.mcp.NAME.startup_timeout")),
    ("run.agent.mcp.NAME.tool_timeout_secs", Same("run.agent.mcp.NAME.tool_timeout")),
    ("work_dir", Same("run.working_dir")),
    ("directory", Same("run.working_dir")),
    ("run.work_dir", Same("run.working_dir")),
    // What changes nothing.
    ("workflow.name", NoEffect(DESCRIBES)),
    ("workflow.description", NoEffect(DESCRIBES)),
    ("workflow.metadata", NoEffect(DESCRIBES)),
    ("run.metadata", NoEffect(DESCRIBES)),
    ("project.name", NoEffect(DESCRIBES)),
    ("project.description", NoEffect(DESCRIBES)),
    ("project.metadata", NoEffect(DESCRIBES)),
    ("cli", NoEffect(OTHER_PROGRAM)),
    ("server", NoEffect(OTHER_PROGRAM)),
    ("features", NoEffect(OTHER_PROGRAM)),
    ("log", NoEffect(OTHER_PROGRAM)),
    ("run.sandbox.docker", NoEffect(OTHER_PROVIDER)),
    ("run.sandbox.daytona", NoEffect(OTHER_PROVIDER)),
    ("run.sandbox.ssh", NoEffect(OTHER_PROVIDER)),
    ("run.sandbox.exe", NoEffect(OTHER_PROVIDER)),
    ("run.sandbox.sprites", NoEffect(OTHER_PROVIDER)),
    ("run.sandbox.stop_on_terminal", NoEffect(OTHER_PROVIDER)),
    ("environments", NoEffect("it is used only by `run.environment`")),
    // What is lost.
    ("run.hooks.sandbox", Lost("hooks run on this machine, in the working directory, not in a sandbox", "set it to false if they may")),
    ("run.hooks.tls", Lost("certificates are always verified", "remove it")),
    ("run.hooks.allowed_env_vars", NoEffect("headers name their variables as `$NAME`")),
    ("run.pull_request", Lost("no pull request is opened", "open one in a command stage before the exit, with `gh pr create`")),
    ("run.checkpoint", Lost("files are committed after each stage only in a worktree", "set `run.git.worktree = true`, and `run.git.exclude` for files that are not committed")),
    ("run.notifications", Lost("no message is sent", IN_A_STAGE)),
    ("run.interviews", Lost("questions are asked in the terminal only", "answer them there, or from another process")),
    ("run.scm", Lost("nothing is cloned from or pushed to a repository", "clone before the run, and push in a command stage")),
    ("run.clone", Lost("nothing is cloned: a run works in the directory it is started in", "clone before the run")),
    ("run.integrations", Lost("stages get no token of that service", "set an environment variable such as GITHUB_TOKEN")),
    ("run.execution.retros", Lost("no retrospective is written", "ask for it in a prompt stage before the exit")),
    ("retro", Lost("no retrospective is written", "ask for it in a prompt stage before the exit")),
    ("fabro.retro", Lost("no retrospective is written", "ask for it in a prompt stage before the exit")),
    ("run.prepare.timeout", Lost("the steps have no timeout", "write `timeout 5m` before the command of a step")),
    ("run.prepare.timeout_ms", Lost("the steps have no timeout", "write `timeout 5m` before the command of a step")),
    ("run.prepare.steps.env", Lost("the step runs without these variables", "set them in `run.sandbox.env`, or in its script")),
    ("run.model.controls", Lost("requests have the defaults of the model", "set `reasoning_effort` and `speed` on nodes, or in the model stylesheet")),
    ("run.sandbox.local.worktree_mode", Lost("stages change the files of the working directory itself, not of a worktree", "set `run.git.worktree = true`")),
    // What must not be passed over.
    ("run.hooks.prompt", Refused("a hook runs a command or sends a request", "ask the model in a script or in a stage")),
    ("run.sandbox.devcontainer", OtherSandbox("scripts would run on this machine, not in the container", "choose a sandbox by `--sandbox`, or start fabro in the container and remove this setting")),
    ("run.environment", OtherSandbox("scripts would run on this machine, without the isolation it asks for", "choose a sandbox by `--sandbox`, or set `run.sandbox`; environments with the providers `local` and `docker` in the same file are read")),
    ("run.working_dir", Refused("scripts would run in the directory where the run is started", "remove it, and start the run in that directory")),
];

/// What this version does with the setting of this name (`NAME` for a key that the user chose), if
/// it is one of upstream.
pub(crate) fn upstream(pattern: &str) -> Option<Handling> {
    UPSTREAM.iter().find(|(name, _)| *name == pattern).map(|(_, handling)| *handling)
}

/// Whether a setting of upstream is below this name.
pub(crate) fn has_upstream_below(pattern: &str) -> bool {
    let below = |name: &str| name.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('.'));
    UPSTREAM.iter().any(|(name, _)| below(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::RUN_FILE;

    #[test]
    fn every_other_name_leads_to_a_setting() {
        let ours = RUN_FILE.concat();
        let is_ours = |name: &str| {
            ours.iter().any(|(own, _)| {
                own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        for (name, handling) in UPSTREAM {
            assert!(!ours.iter().any(|(own, _)| own == name), "{name} is a setting of ours");
            if let Same(target) = handling {
                assert!(is_ours(target) || upstream(target).is_some(), "{name} -> {target}");
            }
        }
    }
}
