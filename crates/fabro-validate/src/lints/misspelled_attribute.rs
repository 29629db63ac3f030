use std::collections::BTreeMap;

use fabro_graph::Diagnostic;
use fabro_graph::schema::{self, Place};

use crate::checking::Checking;
use crate::near::nearest;

/// Attributes of ours with a letter wrong, or on the wrong thing: they would silently do nothing.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut known: BTreeMap<(Place, &str), Option<Verdict>> = BTreeMap::new();
    for (place, attr) in checking.workflow.written_attrs() {
        let name: &str = &attr.written;
        let Some(verdict) = *known.entry((place, name)).or_insert_with(|| judge(place, name))
        else {
            continue;
        };
        let (message, fix) = match verdict {
            Verdict::Near(near) => (
                format!("`{name}` is no attribute of this {}", kind_of(place)),
                format!("did you mean `{near}`?"),
            ),
            Verdict::Elsewhere(other) => (
                format!("`{name}` has no effect on {}", plural(place)),
                format!("it is an attribute of {}", plural(other)),
            ),
        };
        findings.push(
            Diagnostic::warning("misspelled-attribute", attr.key_span, message).with_fix(fix),
        );
    }
}

#[derive(Clone, Copy)]
enum Verdict {
    Near(&'static str),
    Elsewhere(Place),
}

fn judge(place: Place, name: &str) -> Option<Verdict> {
    let is_older =
        |place| schema::OLDER_NAMES.iter().any(|older| older.older == name && older.place == place);
    let is_known = |place| schema::find(place, name).is_some() || is_older(place);
    if is_known(place) || schema::GRAPHVIZ.binary_search(&name).is_ok() {
        return None;
    }
    if let Some(other) =
        [Place::Graph, Place::Node, Place::Edge].into_iter().find(|place| is_known(*place))
    {
        return Some(Verdict::Elsewhere(other));
    }
    let here = schema::ATTRIBUTES.iter().filter(|known| known.places.contains(&place));
    let older = schema::OLDER_NAMES.iter().filter(|older| older.place == place);
    let names = here.map(|known| known.name).chain(older.map(|older| older.older));
    nearest(name, names).map(Verdict::Near)
}

fn kind_of(place: Place) -> &'static str {
    place.as_str()
}

fn plural(place: Place) -> &'static str {
    match place {
        Place::Graph => "the graph",
        Place::Node => "nodes",
        Place::Edge => "edges",
    }
}
