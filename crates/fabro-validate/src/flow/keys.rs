//! Who writes which context key. Rules: `docs/workflow-language.md`, "Context".

use fabro_graph::schema::{self, Place};
use fabro_graph::{Node, NodeKind, Workflow};

use super::misspelled::{Mentions, misspelled};
use super::writer::{Need, Writer, asks_model, element_name, has_output, may_give_directives};
use crate::near::Nearby;

/// What it takes for `key`, without a leading `context.`, to have a value in this workflow.
pub(crate) fn need(mentions: &Mentions<'_>, key: &str, nearby: &Nearby) -> Need {
    match need_of_name(mentions.workflow(), key, nearby) {
        Need::Stage(Writer::Updates) => {
            misspelled(mentions, key, nearby).unwrap_or(Need::Stage(Writer::Updates))
        }
        need => need,
    }
}

fn need_of_name(workflow: &Workflow, key: &str, nearby: &Nearby) -> Need {
    let (root, rest) = key.split_once('.').unwrap_or((key, ""));
    let fixed = |names: &[&str], writer| of_table(key, names, writer, nearby);
    if let Some(need) = of_element(workflow, root) {
        return need;
    }
    match root {
        "outcome" | "preferred_label" | "current_node" | "last_stage" | "failure_class"
        | "failure_signature" => Need::Nothing,
        "last_response" if rest.is_empty() => Need::Stage(Writer::Response),
        root if root.starts_with("last_") || root.starts_with("failure_") => of_table(
            key,
            &["last_stage", "last_response", "failure_class", "failure_signature"],
            Writer::Response,
            nearby,
        ),
        _ if rest.is_empty() => match head_alone(workflow, root) {
            Some(fix) => Need::Impossible { why: "only keys below it are written".to_owned(), fix },
            None => Need::Stage(Writer::Updates),
        },
        "inputs" => Need::Impossible {
            why: "conditions read context keys; inputs can only be on the right-hand side"
                .to_owned(),
            fix: format!(
                "compare a key with {{{{ {key} }}}}, or let a command print the input (script=\"echo {{{{ {key} }}}}\") and read command.output"
            ),
        },
        "internal" => internal(workflow, key, rest, nearby),
        "graph" => of_graph(workflow, rest, nearby),
        "command" => {
            fixed(&["command.output", "command.stderr", "command.exit_code"], Writer::Command)
        }
        "human" if is_of_gate(workflow, key) => Need::Stage(Writer::Human),
        "human" => of_gates(workflow, key, nearby),
        "parallel"
            if is_at_or_in(key, "parallel.results")
                || is_at_or_in(key, "parallel.outputs")
                || key == "parallel.branch_count" =>
        {
            Need::Stage(Writer::FanOut)
        }
        "parallel" => fixed(
            &[
                "parallel.fan_in.best_id",
                "parallel.fan_in.best_outcome",
                "parallel.fan_in.best_head_sha",
                "parallel.results",
                "parallel.outputs",
                "parallel.branch_count",
            ],
            Writer::FanIn,
        ),
        "response" | "output" | "child" => of_node(workflow, root, rest, nearby),
        _ => Need::Stage(Writer::Updates),
    }
}

/// What to read instead of a word that keys of the engine begin with, and that no stage can write alone.
fn head_alone(workflow: &Workflow, root: &str) -> Option<String> {
    let example = |writes: fn(&Node) -> bool| {
        let found = workflow.nodes().find(|node| writes(node));
        found.map_or("NODE", |node| &*node.id).to_owned()
    };
    Some(match root {
        "response" => format!(
            "read `last_response` for the latest answer, or `response.{}` for that of one node",
            example(asks_model)
        ),
        "output" => format!(
            "read `command.output` for what the last command wrote, or `output.{}` for the validated output of one node",
            example(has_output)
        ),
        "child" => format!("read `child.{}`", example(|node| node.kind == NodeKind::ManagerLoop)),
        "command" => "read `command.output`, `command.stderr` or `command.exit_code`".to_owned(),
        "human" => "read `human.gate.label`, or `human.gate.text` for a free text".to_owned(),
        "parallel" => "read `parallel.results` or `parallel.outputs`".to_owned(),
        "graph" => "read an attribute of the graph, such as `graph.goal`".to_owned(),
        "internal" => "name a key below it, such as `internal.node_visit_count`".to_owned(),
        _ => return None,
    })
}

/// A key that the elements of a list have in their branches.
fn of_element(workflow: &Workflow, key: &str) -> Option<Need> {
    let name = key.strip_suffix("_index").unwrap_or(key);
    let any = key == "item_index";
    let mut lists = workflow.node_indices().filter(|ix| workflow.node(*ix).for_each().is_some());
    let list = lists.find(|ix| {
        let own = element_name(workflow.node(*ix));
        any || own == key || own == name
    })?;
    Some(Need::Stage(Writer::Element { list, any }))
}

fn is_at_or_in(key: &str, head: &str) -> bool {
    key.strip_prefix(head).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Keys of a fixed list, all of them strings or numbers with no fields.
fn of_table(key: &str, names: &[&str], writer: Writer, nearby: &Nearby) -> Need {
    if names.contains(&key) {
        return Need::Stage(writer);
    }
    let inside = names.iter().find(|name| is_at_or_in(key, name));
    let why = match inside {
        Some(name) => format!("`{name}` is a text, with nothing inside it"),
        None => "keys of this name belong to the engine, which writes no such key".to_owned(),
    };
    let near = inside.copied().or_else(|| nearby.nearest(key, names.iter().copied()));
    let fix = match near {
        Some(name) => format!("read `{name}`"),
        None => format!("read one of {}", names.join(", ")),
    };
    Need::Impossible { why, fix }
}

/// `human.gate.*`: suggests the nearest key, among those of named gates if the key has more than three parts.
fn of_gates(workflow: &Workflow, key: &str, nearby: &Nearby) -> Need {
    const LATEST: [&str; 3] = ["human.gate.selected", "human.gate.label", "human.gate.text"];
    if key.split('.').count() > LATEST[0].split('.').count() {
        let gates = workflow.nodes().filter(|node| node.kind == NodeKind::Human);
        let keys = gates
            .flat_map(|node| KEYS_OF_GATE.map(|name| format!("human.gate.{}.{name}", node.id)));
        let keys: Vec<_> = keys.collect();
        if let Some(near) = nearby.nearest(key, keys.iter().map(String::as_str)) {
            let why = "no gate writes such a key".to_owned();
            return Need::Impossible { why, fix: format!("did you mean `{near}`?") };
        }
    }
    of_table(key, &LATEST, Writer::Human, nearby)
}

const KEYS_OF_GATE: [&str; 3] = ["question", "answer", "label"];

/// `human.gate.NODE.answer` and the like, of a human gate that is there.
fn is_of_gate(workflow: &Workflow, key: &str) -> bool {
    let own = key.strip_prefix("human.gate.").and_then(|own| own.rsplit_once('.'));
    own.is_some_and(|(id, name)| {
        let node = workflow.find(id).map(|ix| workflow.node(ix));
        KEYS_OF_GATE.contains(&name) && node.is_some_and(|node| node.kind == NodeKind::Human)
    })
}

fn internal(workflow: &Workflow, key: &str, rest: &str, nearby: &Nearby) -> Need {
    const NAMES: [&str; 6] = [
        "internal.run_id",
        "internal.work_dir",
        "internal.workflow_dir",
        "internal.fidelity",
        "internal.thread_id",
        "internal.node_visit_count",
    ];
    if let Some(id) = rest.strip_prefix("retry_count.") {
        return match workflow.find(id) {
            Some(_) => Need::Nothing,
            None => no_node(workflow, "internal.retry_count.", id, nearby),
        };
    }
    // The engine may keep keys of its own here, which are not documented.
    match nearby.nearest(key, NAMES).filter(|near| *near != key) {
        Some(near) => Need::Impossible {
            why: "the engine writes no such key".to_owned(),
            fix: format!("did you mean `{near}`?"),
        },
        None => Need::Nothing,
    }
}

fn of_graph(workflow: &Workflow, name: &str, nearby: &Nearby) -> Need {
    let is_known = schema::find(Place::Graph, name).is_some();
    if is_known || workflow.attrs().get(name).is_some() {
        return Need::Nothing;
    }
    let names = workflow.attrs().iter().map(|attr| &*attr.name);
    let near = nearby.nearest(name, names.chain(["goal"]));
    Need::Impossible {
        why: format!("the graph has no attribute `{name}`"),
        fix: match near {
            Some(near) => format!("did you mean `graph.{near}`?"),
            None => format!("add it: graph [{name}=…]"),
        },
    }
}

/// `response.ID`, `output.ID`, `child.ID`, the latter two with a path behind.
fn of_node(workflow: &Workflow, root: &str, rest: &str, nearby: &Nearby) -> Need {
    // Ids of imported nodes have dots in them: the longest counts.
    let heads = rest.rmatch_indices('.').map(|(dot, _)| (&rest[..dot], &rest[dot + 1..]));
    let mut ways = std::iter::once((rest, "")).chain(heads);
    let way = ways.find(|(id, _)| workflow.find(id).is_some());
    let (id, path) = way.or_else(|| rest.split_once('.')).unwrap_or((rest, ""));
    // Directives of commands may write any key below `output.`.
    let may_write_output =
        |node: &Node| node.kind == NodeKind::Command && may_give_directives(node);
    if root == "output" && workflow.nodes().any(may_write_output) {
        return Need::Nothing;
    }
    let Some(ix) = workflow.find(id) else {
        return no_node(workflow, &format!("{root}."), id, nearby);
    };
    let node = workflow.node(ix);
    let writes = match root {
        "response" => asks_model(node),
        "output" => has_output(node),
        _ => node.kind == NodeKind::ManagerLoop,
    };
    if writes && root == "response" && !path.is_empty() {
        let why = format!("`response.{id}` is a text, with nothing inside it");
        let fix = format!("give `{id}` an output_schema and read `output.{id}.{path}`");
        return Need::Impossible { why, fix };
    }
    if writes {
        return Need::Stage(Writer::Node(ix));
    }
    let (why, fix) = match (root, node.kind) {
        ("output", _) if asks_model(node) => (
            format!("`{id}` has no output_schema of its own"),
            format!("give it one, or read `response.{id}`"),
        ),
        (_, NodeKind::Command) => {
            (format!("`{id}` is a command node"), "read `command.output`".to_owned())
        }
        (_, NodeKind::Human) => (
            format!("`{id}` is a human gate"),
            "read `human.gate.label` or `human.gate.text`".to_owned(),
        ),
        (_, NodeKind::ManagerLoop) => {
            (format!("`{id}` runs a sub-workflow"), format!("read `child.{id}`"))
        }
        (_, kind) => {
            let what = match root {
                "response" => "answer",
                "output" => "validated output",
                _ => "sub-workflow",
            };
            (format!("`{id}` ({kind}) has no {what}"), "name another node".to_owned())
        }
    };
    Need::Impossible { why, fix }
}

fn no_node(workflow: &Workflow, prefix: &str, id: &str, nearby: &Nearby) -> Need {
    let fix = match nearby.nearest(id, workflow.nodes().map(|node| &*node.id)) {
        Some(near) => format!("did you mean `{prefix}{near}`?"),
        None => "name a node of this workflow".to_owned(),
    };
    Need::Impossible { why: format!("there is no node `{id}`"), fix }
}
