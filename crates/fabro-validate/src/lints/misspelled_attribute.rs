use std::collections::BTreeMap;

use fabro_graph::schema::{self, Place};

use crate::checking::Checking;
use crate::findings::Findings;

/// Known attributes that are misspelled, or on the wrong element: they would silently have no effect.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut known: BTreeMap<(Place, &str), Option<Misuse>> = BTreeMap::new();
    for (place, attr) in checking.workflow.written_attrs() {
        let name: &str = &attr.written;
        let misuse = *known.entry((place, name)).or_insert_with(|| misuse(checking, place, name));
        let (message, fix) = match misuse {
            None => continue,
            Some(Misuse::Near(near)) => (
                format!("`{name}` is not an attribute of {}", plural(place)),
                format!("did you mean `{near}`?"),
            ),
            Some(Misuse::Elsewhere(other)) => (
                format!("`{name}` has no effect on {}", plural(place)),
                format!("it is an attribute of {}", plural(other)),
            ),
        };
        findings.warning("misspelled-attribute", attr.key_span, message, fix);
    }
}

#[derive(Clone, Copy)]
enum Misuse {
    Near(&'static str),
    Elsewhere(Place),
}

fn misuse(checking: &Checking<'_>, place: Place, name: &str) -> Option<Misuse> {
    let is_older =
        |place| schema::OLDER_NAMES.iter().any(|older| older.older == name && older.place == place);
    let is_known = |place| schema::find(place, name).is_some() || is_older(place);
    if is_known(place) || schema::GRAPHVIZ.binary_search(&name).is_ok() {
        return None;
    }
    let places = [Place::Graph, Place::Node, Place::Edge];
    if let Some(other) = places.into_iter().find(|place| is_known(*place)) {
        return Some(Misuse::Elsewhere(other));
    }
    let here = schema::ATTRIBUTES.iter().filter(|known| known.places.contains(&place));
    let older = schema::OLDER_NAMES.iter().filter(|older| older.place == place);
    let names = here.map(|known| known.name).chain(older.map(|older| older.older));
    let plural = names.clone().find(|known| is_singular_of(name, known));
    plural.or_else(|| checking.nearest(name, names)).map(Misuse::Near)
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
        insta::assert_snapshot!(reported("misspelled-attribute", r#"start -> a -> exit [max_visits=3]; a [condition="x"]"#), @r"
        1:33 warning: `max_visits` has no effect on edges
          at: max_visits
          fix: it is an attribute of nodes
        1:51 warning: `condition` has no effect on nodes
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
    fn other_names_are_kept_without_a_word() {
        insta::assert_snapshot!(reported("misspelled-attribute", r#"graph [owner="me", rankdir=LR, bgcolor=white]; start -> a -> exit [color=red, style=dashed]; a [prompt=x, fontsize=12, my.own=1, tag=x, ticket="F-1"]"#), @"nothing");
    }
}
