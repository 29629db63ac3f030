use fabro_graph::NodeKind;
use fabro_graph::schema::{self, ValueType};

const REFERENCE: &str = include_str!("../../reference.md");

#[test]
fn the_reference_has_every_attribute() {
    for attribute in schema::ATTRIBUTES {
        let places: Vec<_> = attribute.places.iter().map(|place| place.as_str()).collect();
        let default = match attribute.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let value = match attribute.value {
            ValueType::Words(words) => format!("`{}`", words.join("`, `")),
            value => value.to_string(),
        };
        let name = attribute.name;
        let places = places.join(", ");
        let doc = attribute.doc;
        let row = format!("| `{name}` | {places} | {value} | {default} | {doc} |");
        assert!(REFERENCE.contains(&row), "missing in reference.md:\n{row}");
    }
    let rows = REFERENCE.lines().filter(|line| schema_row(line)).count();
    assert_eq!(rows, schema::ATTRIBUTES.len(), "reference.md has attributes that do not exist");
}

fn schema_row(line: &str) -> bool {
    ["graph", "node", "edge"].iter().any(|place| {
        line.split('|')
            .nth(2)
            .is_some_and(|cell| cell.trim().split(", ").any(|word| word == *place))
    }) && line.split('|').count() == 7
}

#[test]
fn the_reference_has_every_kind_and_older_name() {
    for kind in NodeKind::ALL {
        let row = format!("| `{kind}` | `{}` |", kind.shape());
        assert!(REFERENCE.contains(&row), "missing in reference.md:\n{row}");
    }
    for older in schema::OLDER_NAMES {
        let row = format!("| `{}` | `{}` |", older.older, older.name);
        assert!(REFERENCE.contains(&row), "missing in reference.md:\n{row}");
    }
}
