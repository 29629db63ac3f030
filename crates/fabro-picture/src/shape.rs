//! The outlines of nodes, as polygons around their centers.

use fabro_types::NodeKind;

/// A place of a picture; y grows downwards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// The size of a node's box, for a text of this size.
pub(crate) fn size(kind: NodeKind, text_width: f64, text_height: f64) -> (f64, f64) {
    let width = text_width + 28.0;
    let height = text_height + 20.0;
    match kind {
        // The text fits into the middle of a diamond.
        NodeKind::Conditional => (width * 1.35, height * 1.5),
        NodeKind::Human | NodeKind::Command => (width + 24.0, height),
        NodeKind::ManagerLoop => (width, height + 14.0),
        NodeKind::FanIn => (width + 10.0, height + 6.0),
        _ => (width.max(64.0), height),
    }
}

/// The corners of a node, clockwise.
pub(crate) fn corners(kind: NodeKind, center: Place, width: f64, height: f64) -> Vec<Place> {
    let x = width / 2.0;
    let y = height / 2.0;
    let offsets: Vec<(f64, f64)> = match kind {
        NodeKind::Conditional => vec![(0.0, -y), (x, 0.0), (0.0, y), (-x, 0.0)],
        NodeKind::Human => {
            vec![(14.0 - x, -y), (x - 14.0, -y), (x, 0.0), (x - 14.0, y), (14.0 - x, y), (-x, 0.0)]
        }
        NodeKind::Command => vec![(14.0 - x, -y), (x, -y), (x - 14.0, y), (-x, y)],
        NodeKind::ManagerLoop => {
            vec![(0.0, -y), (x, 14.0 - y), (x, y), (-x, y), (-x, 14.0 - y)]
        }
        NodeKind::FanIn => {
            let c = 10.0;
            vec![
                (c - x, -y),
                (x - c, -y),
                (x, c - y),
                (x, y - c),
                (x - c, y),
                (c - x, y),
                (-x, y - c),
                (-x, c - y),
            ]
        }
        _ => vec![(-x, -y), (x, -y), (x, y), (-x, y)],
    };
    offsets.into_iter().map(|(dx, dy)| Place { x: center.x + dx, y: center.y + dy }).collect()
}

/// How round the corners of a node are; `None` for one with straight corners.
pub(crate) fn radius(kind: NodeKind, height: f64) -> Option<f64> {
    match kind {
        NodeKind::Start | NodeKind::Exit => Some(height / 2.0),
        NodeKind::Wait => Some(14.0),
        NodeKind::Agent => Some(8.0),
        NodeKind::Prompt | NodeKind::Parallel => Some(3.0),
        _ => None,
    }
}

/// Where the line from outside to the center crosses the outline.
pub(crate) fn crossing(outline: &[Place], center: Place, outside: Place) -> Place {
    let mut nearest: Option<(f64, Place)> = None;
    for (at, from) in outline.iter().enumerate() {
        let to = outline[(at + 1) % outline.len()];
        let Some((along, place)) = intersection(outside, center, (*from, to)) else { continue };
        if nearest.is_none_or(|(best, _)| along < best) {
            nearest = Some((along, place));
        }
    }
    nearest.map_or(outside, |(_, place)| place)
}

/// Where the line `from..to` crosses a side of an outline, and how far along it.
fn intersection(from: Place, to: Place, side: (Place, Place)) -> Option<(f64, Place)> {
    let way = Place { x: to.x - from.x, y: to.y - from.y };
    let across = Place { x: side.1.x - side.0.x, y: side.1.y - side.0.y };
    let cross = way.x * across.y - way.y * across.x;
    if cross.abs() < 1e-9 {
        return None;
    }
    let start = Place { x: side.0.x - from.x, y: side.0.y - from.y };
    let along = (start.x * across.y - start.y * across.x) / cross;
    let beside = (start.x * way.y - start.y * way.x) / cross;
    let within = -1e-9..=1.0 + 1e-9;
    let meets = within.contains(&along) && within.contains(&beside);
    meets.then_some((along, Place { x: from.x + along * way.x, y: from.y + along * way.y }))
}
