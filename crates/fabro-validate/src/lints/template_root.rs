use std::collections::HashSet;

use fabro_graph::{Attr, Node, NodeKind, Span, schema};
use fabro_plan::{TextPlace, is_jinja};

use crate::checking::Checking;
use crate::findings::Findings;
use crate::flow::{FIELDS, asks_model, element_name, has_output};

/// At how many dots a name is taken apart, in search of the id of a node.
const MAX_DOTS: usize = 20;

/// Names that begin with this are context keys.
const KEYS: [&str; 6] =
    ["command.", "failure_class", "failure_signature", "last_response", "last_stage", "parallel."];

/// What a template of ours begins with, when it has a path.
const OWN: [&str; 2] = ["inputs", "context"];

/// `{{ … }}` that stays text, although it looks like a template of ours: `{{ input.x }}`,
/// `{{ response.plan }}`, `{{ plan.response }}`.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for (attr, scope, kind) in rendered(checking) {
        let Some(text) = attr.value.text().filter(|text| text.contains("{{")) else { continue };
        if !is_jinja(attr, text) && seen.insert(TextPlace::of(attr)) {
            let reads_context = !matches!(&*attr.name, "goal" | "label")
                || kind.is_some_and(|kind| kind == NodeKind::Human || kind.is_llm());
            check_text(checking, attr, NameScope { scope, reads_context }, text, findings);
        }
    }
}

/// How names in a text are resolved.
#[derive(Clone, Copy)]
struct NameScope<'a> {
    /// The import prefix of the node ids in its file.
    scope: &'a str,
    reads_context: bool,
}

/// The texts in which templates are expanded: of nodes, of edges, and the goal. Each with what the ids of its
/// file begin with (an import's id and a dot, or nothing) and the kind of its node, or of the gate that an edge
/// leaves.
pub(super) fn rendered<'a>(
    checking: &Checking<'a>,
) -> impl Iterator<Item = (&'a Attr, &'a str, Option<NodeKind>)> {
    let workflow = checking.workflow;
    let goal = workflow.attrs().get("goal").map(|attr| (attr, "", None));
    let of_nodes = workflow.nodes().flat_map(|node| {
        let texts = node.attrs.iter().filter(|attr| is_template(node, attr));
        texts.map(move |attr| (attr, scope(node), Some(node.kind)))
    });
    let of_edges = workflow.edges().flat_map(move |edge| {
        let from = workflow.node(edge.from);
        let gate = Some(NodeKind::Human).filter(|gate| from.kind == *gate);
        let names = ["label", "human.description", "human.preview"];
        let texts = names.into_iter().filter_map(|name| edge.attrs.get(name));
        texts.map(move |attr| (attr, scope(from), gate))
    });
    of_nodes.chain(of_edges).chain(goal)
}

fn scope(node: &Node) -> &str {
    node.id.rfind('.').map_or("", |dot| &node.id[..=dot])
}

/// Whether an attribute of this node is rendered.
fn is_template(node: &Node, attr: &Attr) -> bool {
    match &*attr.name {
        "prompt" | "script" | "label" => true,
        "show" => node.kind == NodeKind::Human,
        "reason" => node.kind == NodeKind::Exit,
        "for_each" => node.for_each().is_some(),
        name => schema::is_keyed(name),
    }
}

fn check_text(
    checking: &Checking<'_>,
    attr: &Attr,
    own: NameScope<'_>,
    text: &str,
    findings: &mut Findings,
) {
    let NameScope { scope, reads_context } = own;
    for (open, _) in text.match_indices("{{") {
        let inside = text[open + 2..].trim_start();
        let start = text.len() - inside.len();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        let name = &inside[..inside.find(|c| !is_name(c)).unwrap_or(inside.len())];
        if !inside[name.len()..].trim_start().starts_with(['}', '|', '[']) {
            continue;
        }
        let span = Span::new(start, start + name.len());
        let own = own_name(scope, name);
        let name = own.as_deref().unwrap_or(name);
        let fix = if let Some(variable) = name.strip_prefix("secrets.") {
            format!("templates have no secrets: a script reads `${variable}` from its environment")
        } else {
            let meant = meant(checking, scope, name)
                .filter(|meant| reads_context || !meant.starts_with("context."));
            let Some(meant) = meant else { continue };
            format!("did you mean `{meant}`?")
        };
        let message = format!("`{{{{ {name} }}}}` is no template: it stays as it is");
        findings.warning("template-root", checking.place(attr, span), message, fix);
    }
}

/// A name as its own file has it; `None` where an import has not changed it.
fn own_name(scope: &str, name: &str) -> Option<String> {
    let (root, path) = name.split_once('.')?;
    let own = path.strip_prefix(Some(scope).filter(|scope| !scope.is_empty())?)?;
    Some(format!("{root}.{own}"))
}

/// The name of ours that was probably meant. `scope` is what the ids of the file begin with that the text
/// is from: nothing, or that of an import with a dot.
fn meant(checking: &Checking<'_>, scope: &str, name: &str) -> Option<String> {
    let (root, path) = match name.split_once('.') {
        Some((root, path)) => (root, Some(path)),
        None => (name, None),
    };
    match (root, path) {
        ("input" | "vars", Some(path)) => Some(format!("inputs.{path}")),
        ("ctx", Some(path)) => Some(format!("context.{path}")),
        ("response" | "output" | "child", Some(path)) => of_node(checking, scope, root, path),
        ("human", Some(path)) => Some(if path.starts_with("gate.") {
            format!("context.{name}")
        } else {
            "context.human.gate.label".to_owned()
        }),
        _ if KEYS.iter().any(|key| name == *key || key.ends_with('.') && name.starts_with(key)) => {
            Some(format!("context.{name}"))
        }
        _ => {
            if root == "goal" || OWN.contains(&root) {
                return None;
            }
            if checking.inputs.is_some_and(|inputs| inputs.contains_key(name)) {
                return Some(format!("inputs.{name}"));
            }
            if let Some(element) = of_element(checking, root, path) {
                return Some(element);
            }
            if let Some((node, path)) = split_id(checking, scope, name) {
                return result_of(node, &name[..name.len() - path.len()], path);
            }
            // `content` is a word of its own, in the templates of others.
            let near = checking.nearest(root, OWN).filter(|_| root != "content")?;
            path.map(|path| format!("{near}.{path}"))
        }
    }
}

/// `context.response.ID` and the like, when there is such a node, or one of nearly that name.
fn of_node(checking: &Checking<'_>, scope: &str, root: &str, path: &str) -> Option<String> {
    if split_id(checking, scope, path).is_some() {
        return Some(format!("context.{root}.{path}"));
    }
    let (id, rest) = path.find('.').map_or((path, ""), |dot| path.split_at(dot));
    let near = checking.nearest_node(id)?;
    Some(format!("context.{root}.{near}{rest}"))
}

/// The key of an element of a list, or of its place, that a name is or begins with. `item` is the element of any list.
fn of_element(checking: &Checking<'_>, root: &str, path: Option<&str>) -> Option<String> {
    let (element, is_place) = match root.strip_suffix("_index") {
        Some(element) => (element, true),
        None => (root, false),
    };
    if !checking.elements().contains(element) {
        return None;
    }
    let mut lists = checking.workflow.nodes().filter(|node| node.for_each().is_some());
    let list = lists.find(|list| element == "item" || element_name(list) == element)?;
    let element = if is_place { element } else { element_name(list) };
    let place = if is_place { "_index" } else { "" };
    let path = path.map_or_else(String::new, |path| format!(".{path}"));
    Some(format!("context.{element}{place}{path}"))
}

/// The node whose id a name is or begins with, and what follows the id with its dot. Ids of imported nodes
/// have dots in them: the longest counts.
fn split_id<'a, 'n>(
    checking: &Checking<'a>,
    scope: &str,
    name: &'n str,
) -> Option<(&'a Node, &'n str)> {
    let find = |id: &str| {
        let own = Some(scope).filter(|scope| !scope.is_empty());
        let own = own.and_then(|scope| checking.workflow.find(&format!("{scope}{id}")));
        own.or_else(|| checking.workflow.find(id)).map(|ix| checking.workflow.node(ix))
    };
    let dots = name.rmatch_indices('.').map(|(dot, _)| dot);
    let mut ends = std::iter::once(name.len()).chain(dots).take(MAX_DOTS);
    ends.find_map(|end| Some((find(&name[..end])?, &name[end..])))
}

/// What to read of a node; `None` for one that leaves nothing in the context. `id` is as its own file calls
/// it, `path` has a dot before it.
fn result_of(node: &Node, id: &str, path: &str) -> Option<String> {
    let field = path.strip_prefix('.').unwrap_or_default();
    let is_whole = field.is_empty() || FIELDS.contains(&field);
    Some(match node.kind {
        NodeKind::Command if matches!(field, "stderr" | "exit_code") => {
            format!("context.command.{field}")
        }
        NodeKind::Command => "context.command.output".to_owned(),
        NodeKind::Human if matches!(field, "text" | "selected") => {
            format!("context.human.gate.{field}")
        }
        NodeKind::Human => "context.human.gate.label".to_owned(),
        NodeKind::ManagerLoop => format!("context.child.{id}{path}"),
        _ if !asks_model(node) => return None,
        _ if has_output(node) && is_whole => format!("context.output.{id}"),
        _ if has_output(node) => {
            format!("context.output.{id}.{}", field.strip_prefix("output.").unwrap_or(field))
        }
        _ => format!("context.response.{id}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::support::{reported, reported_with};

    #[test]
    fn templates_begin_with_a_name_of_ours() {
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [prompt="In {{ input.repo }}: {{ctx.plan|upper}} {{ last_response }} {{ command.output }}"]"#), @r"
        1:50 warning: `{{ input.repo }}` is no template: it stays as it is
          at: input.repo
          fix: did you mean `inputs.repo`?
        1:67 warning: `{{ ctx.plan }}` is no template: it stays as it is
          at: ctx.plan
          fix: did you mean `context.plan`?
        1:87 warning: `{{ last_response }}` is no template: it stays as it is
          at: last_response
          fix: did you mean `context.last_response`?
        1:107 warning: `{{ command.output }}` is no template: it stays as it is
          at: command.output
          fix: did you mean `context.command.output`?
        ");
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [prompt="{{ vars.region }} {{ secrets.TOKEN }}"]"#), @r"
        1:47 warning: `{{ vars.region }}` is no template: it stays as it is
          at: vars.region
          fix: did you mean `inputs.region`?
        1:65 warning: `{{ secrets.TOKEN }}` is no template: it stays as it is
          at: secrets.TOKEN
          fix: templates have no secrets: a script reads `$TOKEN` from its environment
        ");
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [prompt="{% if goal %}{{ inputs.x }}{{ input.repo }}{% endif %}"]"#), @"nothing");
        insta::assert_snapshot!(reported_with("template-root", r#"start -> a -> exit; a [prompt="In {{ repo }}"]"#, &[], Some(json!({"repo": "x"}))), @r"
        1:50 warning: `{{ repo }}` is no template: it stays as it is
          at: repo
          fix: did you mean `inputs.repo`?
        ");
    }

    #[test]
    fn misspelled_names_of_ours() {
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [prompt="{{ contxt.x }} {{ contexts.x }} {{ inptus.y }} {{ content.x }}"]"#), @r"
        1:47 warning: `{{ contxt.x }}` is no template: it stays as it is
          at: contxt.x
          fix: did you mean `context.x`?
        1:62 warning: `{{ contexts.x }}` is no template: it stays as it is
          at: contexts.x
          fix: did you mean `context.x`?
        1:79 warning: `{{ inptus.y }}` is no template: it stays as it is
          at: inptus.y
          fix: did you mean `inputs.y`?
        ");
    }

    #[test]
    fn keys_of_the_context_and_nodes() {
        let of = |prompt: &str| {
            let body = format!(
                r#"start -> plan -> audit -> test -> ask -> sub -> a -> exit; plan [prompt=x]; audit [shape=tab, prompt=x, output_schema="{{}}"]; test [shape=parallelogram, script=x]
                ask [shape=hexagon]; sub [shape=house, stack.child_dot_source="digraph {{ start -> exit }}"]; a [prompt="{prompt}"]"#
            );
            let reported = reported("template-root", &body);
            let fixes =
                reported.lines().filter_map(|line| line.strip_prefix("  fix: did you mean "));
            fixes.collect::<Vec<_>>().join(" ")
        };
        insta::assert_snapshot!(of("{{ response.plan }} {{ response.plna }} {{ output.audit.score | int }}"), @"`context.response.plan`? `context.response.plan`? `context.output.audit.score`?");
        insta::assert_snapshot!(of("{{ human.x }} {{ human.gate.text }} {{ parallel.results }} {{ child.sub.output.x }}"), @"`context.human.gate.label`? `context.human.gate.text`? `context.parallel.results`? `context.child.sub.output.x`?");
        insta::assert_snapshot!(of("{{ plan.response }} {{ plan }} {{ audit.score }} {{ audit.output }} {{ audit.output.score }}"), @"`context.response.plan`? `context.response.plan`? `context.output.audit.score`? `context.output.audit`? `context.output.audit.score`?");
        insta::assert_snapshot!(of("{{ test.exit_code }} {{ test.stdout }} {{ ask.text }} {{ ask }} {{ sub.output.x }}"), @"`context.command.exit_code`? `context.command.output`? `context.human.gate.text`? `context.human.gate.label`? `context.child.sub.output.x`?");
        for text in [
            "{{ response.body }}",
            "{{ output }}",
            "{{ response }}",
            "{{ start.x }}",
            "{{ user.plan }}",
            "{{ plan('x') }}",
            "{{ .plan.x }}",
            "{{#plan}}",
            "{{ human }}",
        ] {
            assert_eq!(of(text), "", "{text}");
        }
    }

    #[test]
    fn elements_of_a_list() {
        let of = |list: &str, prompt: &str| {
            let body = format!(
                r#"start -> each -> work -> join -> exit; each [shape=component, {list}]; work [prompt="{prompt}"]; join [shape=tripleoctagon]"#
            );
            let reported = reported("template-root", &body);
            let fixes =
                reported.lines().filter_map(|line| line.strip_prefix("  fix: did you mean "));
            fixes.collect::<Vec<_>>().join(" ")
        };
        insta::assert_snapshot!(of("for_each=\"inputs.files\"", "{{ item }} {{ item.name | upper }} {{ item_index }} {{ context.item }}"), @"`context.item`? `context.item.name`? `context.item_index`?");
        insta::assert_snapshot!(of("for_each=\"inputs.files\", as=file", "{{ file }} {{ file.name }} {{ file_index }} {{ item }} {{ item_index }}"), @"`context.file`? `context.file.name`? `context.file_index`? `context.file`? `context.item_index`?");
        assert_eq!(
            of("for_each=\"inputs.files\"", "{{ file }} {{ items }} {{ index }} {{ files.item }}"),
            ""
        );
        assert_eq!(of("label=x", "{{ item }} {{ item_index }}"), "");
    }

    #[test]
    fn every_text_that_is_rendered() {
        insta::assert_snapshot!(reported("template-root", r#"start -> plan -> test -> sub -> each -> use -> join -> exit; plan [shape=tab, prompt=x]; test [shape=parallelogram, script="cat {{ response.plan }}", env.P="{{ response.plan }}"]
            sub [shape=house, stack.child_dot_source="digraph { start -> exit }", inputs.x="{{ plan.text }}"]; each [shape=component, for_each="{{ response.plan }}"]; use [label="Use {{ response.plan }}"]; join [shape=tripleoctagon, label="{{ response.plan }}"]; use -> join [label="{{ input.x }}"]"#), @r"
        1:144 warning: `{{ response.plan }}` is no template: it stays as it is
          at: response.plan
          fix: did you mean `context.response.plan`?
        1:173 warning: `{{ response.plan }}` is no template: it stays as it is
          at: response.plan
          fix: did you mean `context.response.plan`?
        2:96 warning: `{{ plan.text }}` is no template: it stays as it is
          at: plan.text
          fix: did you mean `context.response.plan`?
        2:148 warning: `{{ response.plan }}` is no template: it stays as it is
          at: response.plan
          fix: did you mean `context.response.plan`?
        2:187 warning: `{{ response.plan }}` is no template: it stays as it is
          at: response.plan
          fix: did you mean `context.response.plan`?
        2:287 warning: `{{ input.x }}` is no template: it stays as it is
          at: input.x
          fix: did you mean `inputs.x`?
        ");
    }

    #[test]
    fn names_in_a_part_are_those_of_its_own_nodes() {
        let part = r#"digraph { start -> plan -> use -> exit; plan [prompt=x]; use [prompt="{{ response.plan }} {{ plan.text }}"] }"#;
        insta::assert_snapshot!(reported_with("template-root", r#"start -> a -> exit; a [import="p.fabro"]"#, &[("p.fabro", part)], None), @r#"
        1:43 warning: p.fabro:1:74: `{{ response.plan }}` is no template: it stays as it is
          at: "p.fabro"
          fix: did you mean `context.response.plan`?
        1:43 warning: p.fabro:1:96: `{{ plan.text }}` is no template: it stays as it is
          at: "p.fabro"
          fix: did you mean `context.response.plan`?
        "#);
    }

    #[test]
    fn other_braces_are_text() {
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [shape=parallelogram, script="docker ps --format '{{.Names}}' '{{ json . }}' {{ inputs.x }} {{ input }} {{ last_responses }} {{ user.name }}"]"#), @"nothing");
    }
}
