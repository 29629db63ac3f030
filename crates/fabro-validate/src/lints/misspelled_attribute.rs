use std::collections::BTreeMap;

use fabro_graph::schema::{self, Place};

use crate::checking::Checking;
use crate::findings::Findings;

/// Known attributes that are misspelled, or on the wrong element, and what people write for ours: they
/// would silently have no effect.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut known: BTreeMap<(Place, &str), Option<Misuse>> = BTreeMap::new();
    for (place, attr) in checking.workflow.written_attrs() {
        let name: &str = &attr.written;
        let misuse = *known.entry((place, name)).or_insert_with(|| misuse(checking, place, name));
        let Some(misuse) = misuse else { continue };
        if name == "model" && GRAPHVIZ_MODELS.contains(&&*attr.value.as_text()) {
            continue;
        }
        let message = match misuse {
            Misuse::Near(_) | Misuse::Foreign(_) => {
                format!("`{name}` is not an attribute of {}", plural(place))
            }
            Misuse::Elsewhere(_) => format!("`{name}` has no effect on {}", plural(place)),
        };
        let fix = match misuse {
            Misuse::Near(near) => format!("did you mean `{near}`?"),
            Misuse::Foreign(fix) => fix.to_owned(),
            Misuse::Elsewhere(other) => elsewhere(place, other, &attr.name),
        };
        findings.warning("misspelled-attribute", attr.key_span, message, fix);
    }
}

/// What `model` says to Graphviz.
const GRAPHVIZ_MODELS: [&str; 4] = ["circuit", "mds", "shortpath", "subset"];

#[derive(Clone, Copy)]
enum Misuse {
    Near(&'static str),
    Foreign(&'static str),
    Elsewhere(Place),
}

fn misuse(checking: &Checking<'_>, place: Place, name: &str) -> Option<Misuse> {
    // Reserved for other tools.
    if name.starts_with("x.") {
        return None;
    }
    let is_older =
        |place| schema::OLDER_NAMES.iter().any(|older| older.older == name && older.place == place);
    let is_keyed = |place| place == Place::Node && schema::is_keyed(name);
    let is_known =
        |place| schema::find(place, name).is_some() || is_older(place) || is_keyed(place);
    let is_drawing = schema::GRAPHVIZ.binary_search(&name).is_ok();
    if is_known(place) || is_drawing && (place, name) != (Place::Graph, "model") {
        return None;
    }
    if let Some((_, _, fix)) =
        FOREIGN.iter().find(|(foreign, of, _)| *foreign == name && *of == place)
    {
        return Some(Misuse::Foreign(fix));
    }
    // Of an attribute of both, an edge's author means its node.
    let places = [Place::Node, Place::Graph, Place::Edge];
    if let Some(other) = places.into_iter().find(|place| is_known(*place)) {
        return Some(Misuse::Elsewhere(other));
    }
    let here = schema::ATTRIBUTES.iter().filter(|known| known.places.contains(&place));
    let older = schema::OLDER_NAMES.iter().filter(|older| older.place == place);
    let names = here.map(|known| known.name).chain(older.map(|older| older.older));
    let plural = names.clone().find(|known| is_singular_of(name, known));
    plural.or_else(|| checking.nearest(name, names)).map(Misuse::Near)
}

/// What to do with an attribute of other elements, under its current name.
fn elsewhere(place: Place, other: Place, name: &str) -> String {
    let its = format!("it is an attribute of {}", plural(other));
    let for_all = ["default_", "max_node_"].into_iter().find_map(|start| {
        let end = name.strip_prefix("max_").filter(|_| start == "max_node_").unwrap_or(name);
        schema::find(Place::Graph, &format!("{start}{end}"))
    });
    match (place, other) {
        (Place::Graph, Place::Node) => match for_all {
            Some(for_all) => format!("use `{}` for all nodes", for_all.name),
            None => format!("{its}: write node [{name}=…] for all of them"),
        },
        (Place::Edge, Place::Node) => {
            format!("{its}: write it in a statement of the node's own, NODE [{name}=…]")
        }
        _ => its,
    }
}

const CWD: &str = "stages run in the run's working directory: begin the script with `cd DIR &&`";
const ENV: &str =
    "write env.NAME=\"…\" for each variable, or set it under [run.sandbox.env] of run.toml";
const SAMPLING: &str = "remove it: requests to models do not have it";
const SYSTEM: &str = "write it into `prompt`, or for all agents into AGENTS.md";
const KEY: &str = "remove it: keys of providers come from the environment";
const PROMPT: &str = "use `prompt`";
const SCRIPT: &str = "use `script`";
const RETRIES: &str = "use `max_retries`, the number of extra attempts";
const VISITS: &str = "use `max_visits`";
const CONDITION: &str = "use `condition`, such as condition=\"outcome=succeeded\"";
const DURATION: &str = "use `duration` on a wait node, `timeout` for a limit";
const PARALLEL: &str = "use `max_parallel` on the parallel node";
const ON_FAILURE: &str =
    "use `on_failure` (continue or stop), or an edge with condition=\"outcome=failed\"";
const BUDGET: &str = "use `max_cost` on the graph, in US dollars";
const CHILD: &str = "use `stack.child_workflow` on the node with shape=house";
const MANAGER: &str = "remove it: a sub-workflow starts with its stage, and ends by itself or by `manager.stop_condition`";
const HOOKS: &str =
    "use [[run.hooks]] of a run.toml, with the event `pre_tool_use` or `post_tool_use`";
const DEPENDS: &str = "write an edge: the stage before -> this node";

/// What people write for our attributes, by where they write it, and what to write.
const FOREIGN: &[(&str, Place, &str)] = &[
    ("api_key", Place::Graph, KEY),
    ("api_key", Place::Node, KEY),
    ("attempts", Place::Node, RETRIES),
    ("bash", Place::Node, SCRIPT),
    ("budget", Place::Graph, BUDGET),
    ("cmd", Place::Node, SCRIPT),
    ("command", Place::Node, SCRIPT),
    ("concurrency", Place::Node, PARALLEL),
    ("cond", Place::Edge, CONDITION),
    ("cost_limit", Place::Graph, BUDGET),
    ("cwd", Place::Graph, CWD),
    ("cwd", Place::Node, CWD),
    ("delay", Place::Node, DURATION),
    ("depends_on", Place::Node, DEPENDS),
    ("effort", Place::Node, "use `reasoning_effort`"),
    ("env", Place::Graph, ENV),
    ("env", Place::Node, ENV),
    ("environment", Place::Graph, ENV),
    ("environment", Place::Node, ENV),
    (
        "error_policy",
        Place::Node,
        "use `join_policy`, and `on_failure` on the stages of the branches",
    ),
    ("exec", Place::Node, SCRIPT),
    ("guard", Place::Edge, CONDITION),
    ("human.timeout_seconds", Place::Node, "use `timeout`"),
    ("if", Place::Edge, CONDITION),
    ("instruction", Place::Node, PROMPT),
    ("instructions", Place::Node, PROMPT),
    ("iterations", Place::Node, VISITS),
    ("join_k", Place::Node, "use join_policy=quorum and `quorum`"),
    ("llm", Place::Node, "use `model`"),
    ("loop_max", Place::Node, VISITS),
    ("manager.actions", Place::Node, MANAGER),
    ("max_attempts", Place::Node, RETRIES),
    ("max_budget", Place::Graph, BUDGET),
    ("max_concurrency", Place::Node, PARALLEL),
    ("max_iterations", Place::Graph, "use `max_node_visits`"),
    ("max_iterations", Place::Node, VISITS),
    ("max_loops", Place::Graph, "use `max_node_visits`"),
    ("max_loops", Place::Node, VISITS),
    ("max_retry_attempts", Place::Node, RETRIES),
    ("max_workers", Place::Node, PARALLEL),
    ("message", Place::Node, "use `prompt`, or `label` for the question of a human gate"),
    ("model_id", Place::Node, "use `model`"),
    ("model_name", Place::Graph, "use `default_model`"),
    ("model_name", Place::Node, "use `model`"),
    ("needs", Place::Node, DEPENDS),
    ("num_retries", Place::Node, RETRIES),
    ("on", Place::Edge, CONDITION),
    ("on_error", Place::Graph, ON_FAILURE),
    ("on_error", Place::Node, ON_FAILURE),
    ("on_fail", Place::Graph, ON_FAILURE),
    ("on_fail", Place::Node, ON_FAILURE),
    ("parallelism", Place::Node, PARALLEL),
    ("priority", Place::Edge, "use `weight`: the higher one is taken"),
    ("prompt_file", Place::Node, "use prompt=\"@FILE\""),
    ("question", Place::Node, "use `label`: a human gate asks its label"),
    ("retries", Place::Graph, "use `default_max_retries`"),
    ("retries", Place::Node, RETRIES),
    ("retry", Place::Node, RETRIES),
    ("retry_count", Place::Node, RETRIES),
    ("run", Place::Node, SCRIPT),
    ("schema", Place::Node, "use `output_schema`"),
    ("script_file", Place::Node, "use script=\"@FILE\""),
    ("shell", Place::Node, SCRIPT),
    ("shell_command", Place::Node, SCRIPT),
    ("sleep", Place::Node, DURATION),
    ("stack.child_autostart", Place::Graph, MANAGER),
    ("stack.child_autostart", Place::Node, MANAGER),
    ("stack.child_dotfile", Place::Graph, CHILD),
    ("stack.child_dotfile", Place::Node, CHILD),
    ("stack.child_workdir", Place::Graph, CWD),
    ("stack.child_workdir", Place::Node, CWD),
    ("system", Place::Node, SYSTEM),
    ("system_prompt", Place::Graph, SYSTEM),
    ("system_prompt", Place::Node, SYSTEM),
    ("task", Place::Node, PROMPT),
    ("temperature", Place::Graph, SAMPLING),
    ("temperature", Place::Node, SAMPLING),
    ("tool_hooks.post", Place::Graph, HOOKS),
    ("tool_hooks.post", Place::Node, HOOKS),
    ("tool_hooks.pre", Place::Graph, HOOKS),
    ("tool_hooks.pre", Place::Node, HOOKS),
    ("top_k", Place::Node, SAMPLING),
    ("top_p", Place::Node, SAMPLING),
    ("user_prompt", Place::Node, PROMPT),
    ("when", Place::Edge, CONDITION),
    ("workdir", Place::Graph, CWD),
    ("workdir", Place::Node, CWD),
    ("working_dir", Place::Graph, CWD),
    ("working_dir", Place::Node, CWD),
    ("working_directory", Place::Graph, CWD),
    ("working_directory", Place::Node, CWD),
];

/// What to write instead of a name that is not ours, if that is known.
pub fn written_instead(name: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(foreign, _, _)| *foreign == name).map(|(_, _, fix)| *fix)
}

/// `max_retry` of `max_retries`: more letters than a slip changes, and a slip all the same.
fn is_singular_of(name: &str, known: &str) -> bool {
    known.strip_suffix("ies").is_some_and(|stem| name.strip_suffix('y') == Some(stem))
}

fn plural(place: Place) -> &'static str {
    match place {
        Place::Graph => "the graph",
        Place::Node => "nodes",
        Place::Edge => "edges",
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn near_names_and_wrong_places() {
        insta::assert_snapshot!(reported("misspelled-attribute", r#"graph [gaol="x"]; start -> a -> exit [conditon="x"]; a [promt="x", goalGate=true]"#), @r"
        1:20 warning: `gaol` is not an attribute of the graph
          at: gaol
          fix: did you mean `goal`?
        1:51 warning: `conditon` is not an attribute of edges
          at: conditon
          fix: did you mean `condition`?
        1:69 warning: `promt` is not an attribute of nodes
          at: promt
          fix: did you mean `prompt`?
        1:80 warning: `goalGate` is not an attribute of nodes
          at: goalGate
          fix: did you mean `goal_gate`?
        ");
        insta::assert_snapshot!(reported("misspelled-attribute", r#"start -> a -> exit [x.condition="x"]; a [x.promt="x", "x.goal_gat"=true]"#), @"nothing");
        insta::assert_snapshot!(reported("misspelled-attribute", r#"start -> a -> exit [max_visits=3, on_failure=stop]; a [condition="x"]"#), @r"
        1:33 warning: `max_visits` has no effect on edges
          at: max_visits
          fix: it is an attribute of nodes: write it in a statement of the node's own, NODE [max_visits=…]
        1:47 warning: `on_failure` has no effect on edges
          at: on_failure
          fix: it is an attribute of nodes: write it in a statement of the node's own, NODE [on_failure=…]
        1:68 warning: `condition` has no effect on nodes
          at: condition
          fix: it is an attribute of edges
        ");
        insta::assert_snapshot!(reported("misspelled-attribute", r#"node [tool_comand="x", max_retry=2]; start -> a -> b -> exit"#), @r"
        1:19 warning: `tool_comand` is not an attribute of nodes
          at: tool_comand
          fix: did you mean `tool_command`?
        1:36 warning: `max_retry` is not an attribute of nodes
          at: max_retry
          fix: did you mean `max_retries`?
        ");
    }

    #[test]
    fn what_people_write_for_ours() {
        insta::assert_snapshot!(reported("misspelled-attribute", r#"graph [model="gpt-5", provider=openai, max_visits=3, timeout=5m, temperature=0]; start -> a -> exit [if="x"]; a [shape=parallelogram, cmd="make", cwd=src, env="A=1", retries=2]"#), @r#"
        1:20 warning: `model` has no effect on the graph
          at: model
          fix: use `default_model` for all nodes
        1:35 warning: `provider` has no effect on the graph
          at: provider
          fix: use `default_provider` for all nodes
        1:52 warning: `max_visits` has no effect on the graph
          at: max_visits
          fix: use `max_node_visits` for all nodes
        1:66 warning: `timeout` has no effect on the graph
          at: timeout
          fix: it is an attribute of nodes: write node [timeout=…] for all of them
        1:78 warning: `temperature` is not an attribute of the graph
          at: temperature
          fix: remove it: requests to models do not have it
        1:114 warning: `if` is not an attribute of edges
          at: if
          fix: use `condition`, such as condition="outcome=succeeded"
        1:147 warning: `cmd` is not an attribute of nodes
          at: cmd
          fix: use `script`
        1:159 warning: `cwd` is not an attribute of nodes
          at: cwd
          fix: stages run in the run's working directory: begin the script with `cd DIR &&`
        1:168 warning: `env` is not an attribute of nodes
          at: env
          fix: write env.NAME="…" for each variable, or set it under [run.sandbox.env] of run.toml
        1:179 warning: `retries` is not an attribute of nodes
          at: retries
          fix: use `max_retries`, the number of extra attempts
        "#);
        insta::assert_snapshot!(reported("misspelled-attribute", r#"node [model_name=x, system_prompt=y, command=z]; start -> a -> exit [prompt="Do it"]"#), @r"
        1:19 warning: `model_name` is not an attribute of nodes
          at: model_name
          fix: use `model`
        1:33 warning: `system_prompt` is not an attribute of nodes
          at: system_prompt
          fix: write it into `prompt`, or for all agents into AGENTS.md
        1:50 warning: `command` is not an attribute of nodes
          at: command
          fix: use `script`
        1:82 warning: `prompt` has no effect on edges
          at: prompt
          fix: it is an attribute of nodes: write it in a statement of the node's own, NODE [prompt=…]
        ");
    }

    #[test]
    fn the_table_has_no_name_of_ours() {
        for (name, place, _) in super::FOREIGN {
            assert!(fabro_graph::schema::find(*place, name).is_none(), "{name}");
        }
        assert!(super::FOREIGN.is_sorted());
    }

    #[test]
    fn other_names_are_kept_without_a_word() {
        insta::assert_snapshot!(reported("misspelled-attribute", r#"graph [owner="me", model=subset, rankdir=LR, bgcolor=white]; start -> a -> exit [color=red, style=dashed]; a [prompt=x, fontsize=12, my.own=1, tag=x, ticket="F-1"]"#), @"nothing");
    }
}
