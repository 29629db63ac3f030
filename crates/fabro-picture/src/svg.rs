//! A layout as SVG.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Deref;

use fabro_graph::{NodeIx, Workflow};
use fabro_types::NodeKind;

use crate::layout::{
    LINE, Layout, PlacedCluster, PlacedEdge, PlacedNode, layout, number, subtitle,
};
use crate::shape::{self, Place};
use crate::words::{escaped, plain, width};
use crate::{MAX_EDGES, MAX_NODES, Marks, NodeMark, NodeResult, TooLarge, time};

/// The style of the pictures, for a page that shows [fragments](Picture::fragment).
pub const STYLE: &str = include_str!("style.css");

/// A workflow as an SVG that stands alone.
///
/// # Errors
///
/// It has more nodes or edges than a picture can show.
pub fn svg(workflow: &Workflow, marks: Option<&Marks>) -> Result<String, TooLarge> {
    Ok(Picture::new(workflow)?.draw(marks, None))
}

/// A workflow that is laid out: this takes most of the time of a picture, and stays the same while a run continues.
pub struct Picture<W> {
    workflow: W,
    layout: Layout,
}

impl<W: Deref<Target = Workflow>> Picture<W> {
    /// Lays a workflow out.
    ///
    /// # Errors
    ///
    /// It has more nodes or edges than a picture can show.
    pub fn new(workflow: W) -> Result<Self, TooLarge> {
        let nodes = workflow.nodes().len();
        let edges = workflow.edges().len();
        if nodes > MAX_NODES || edges > MAX_EDGES {
            return Err(TooLarge { nodes, edges });
        }
        let layout = layout(&workflow);
        Ok(Self { workflow, layout })
    }

    /// The picture as an SVG for a page that has the [`STYLE`]. Nodes are links where `link` has an address for their id.
    pub fn fragment(&self, marks: Option<&Marks>, link: &dyn Fn(&str) -> Option<String>) -> String {
        self.draw(marks, Some(link))
    }

    /// A picture for a page has links, and one that stands alone its own style.
    fn draw(&self, marks: Option<&Marks>, link: Option<Link<'_>>) -> String {
        let layout = &self.layout;
        let mut drawing = Drawing { workflow: &self.workflow, marks, link, out: String::new() };
        drawing.open(layout);
        layout.clusters.iter().for_each(|cluster| drawing.cluster(cluster));
        for edge in &layout.edges {
            drawing.edge(edge, layout);
        }
        layout.nodes.iter().for_each(|node| drawing.node(node));
        layout.edges.iter().for_each(|edge| drawing.edge_label(edge));
        drawing.legend(layout);
        drawing.out.push_str("</svg>\n");
        drawing.out
    }
}

/// The address that a node links to.
type Link<'a> = &'a dyn Fn(&str) -> Option<String>;

struct Drawing<'a> {
    workflow: &'a Workflow,
    marks: Option<&'a Marks>,
    link: Option<Link<'a>>,
    out: String,
}

/// How high the legend is.
const LEGEND: f64 = 28.0;

impl Drawing<'_> {
    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // A string takes any text.
        let _ = self.out.write_fmt(text);
    }

    fn open(&mut self, layout: &Layout) {
        let name = self.workflow.name();
        let legend = if self.marks.is_some() { LEGEND } else { 0.0 };
        let width = layout.width.max(if self.marks.is_some() { 420.0 } else { 0.0 });
        let height = layout.height + legend;
        let title = format!("The workflow {}", escaped(&plain(name)));
        let about = format!(
            "{} nodes and {} edges, from {}",
            self.workflow.nodes().len(),
            self.workflow.edges().len(),
            self.workflow.start().map_or("no start", |start| &self.workflow.node(start).id)
        );
        // An image has no parts: links in it could not be reached.
        let role = if self.link.is_some() { "group" } else { "img" };
        self.write(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fabro-graph\" role=\"{role}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\">\n\
             <title>{title}</title>\n<desc>{}</desc>\n",
            escaped(&about)
        ));
        if self.link.is_none() {
            self.write(format_args!("<style>{STYLE}</style>\n"));
            self.write(format_args!("<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"));
        }
        for (id, class) in [("arrow", "head"), ("arrow-taken", "head taken")] {
            self.write(format_args!(
                "<marker id=\"fabro-{id}\" class=\"{class}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" \
                 markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
                 <path d=\"M0 1 L10 5 L0 9 z\"/></marker>\n"
            ));
        }
    }

    fn cluster(&mut self, cluster: &PlacedCluster) {
        let PlacedCluster { center, width, height, label } = cluster;
        let x = center.x - width / 2.0;
        let y = center.y - height / 2.0;
        self.write(format_args!(
            "<g class=\"cluster\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            x + 4.0,
            y - 5.0,
            escaped(label)
        ));
    }

    fn mark(&self, node: NodeIx) -> Option<NodeMark> {
        self.marks?.nodes.get(&*self.workflow.node(node).id).copied()
    }

    fn node(&mut self, placed: &PlacedNode) {
        let node = self.workflow.node(placed.node);
        let mark = self.mark(placed.node);
        let result = match (self.marks, mark) {
            (None, _) => "",
            (Some(_), Some(mark)) => mark.result.word(),
            (Some(_), None) => "unreached",
        };
        let kind = node.kind.to_string().replace(['.', '_'], "-");
        let spoken = match mark {
            Some(mark) => {
                let visits = if mark.visits == 1 { "visit" } else { "visits" };
                format!("{}, {} {visits}", mark.result.word(), mark.visits)
            }
            None => result.to_owned(),
        };
        let address = self.link.and_then(|link| link(&node.id));
        if let Some(address) = &address {
            self.write(format_args!("<a href=\"{}\">", escaped(address)));
        }
        self.write(format_args!(
            "<g class=\"node kind-{kind} {result}\" data-node=\"{}\"><title>{} ({}){}{}</title>",
            escaped(&node.id),
            escaped(&plain(node.label())),
            node.kind,
            if spoken.is_empty() { "" } else { ": " },
            spoken
        ));
        self.outline(placed, node.kind);
        self.label(placed);
        if let Some(mark) = mark {
            self.badge(placed, mark);
        }
        self.out.push_str(if address.is_some() { "</g></a>\n" } else { "</g>\n" });
    }

    fn outline(&mut self, placed: &PlacedNode, kind: NodeKind) {
        let PlacedNode { center, width, height, .. } = placed;
        let x = center.x - width / 2.0;
        let y = center.y - height / 2.0;
        if let Some(radius) = shape::radius(kind, *height) {
            let rect = |out: &mut String, inset: f64| {
                let _ = write!(
                    out,
                    "<rect class=\"shape\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{:.1}\"/>",
                    x + inset,
                    y + inset,
                    width - 2.0 * inset,
                    height - 2.0 * inset,
                    (radius - inset).max(0.0)
                );
            };
            rect(&mut self.out, 0.0);
            match kind {
                // The end has a second line, as in the usual notations.
                NodeKind::Exit => rect(&mut self.out, 3.5),
                NodeKind::Prompt => {
                    self.write(format_args!(
                        "<path class=\"shape\" d=\"M{x:.1} {y:.1} v-5 h22 v5\"/>"
                    ));
                }
                NodeKind::Parallel => {
                    for line in [y + height * 0.3, y + height * 0.7] {
                        self.write(format_args!(
                            "<rect class=\"shape\" x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"6\"/>",
                            x - 5.0,
                            line - 3.0
                        ));
                    }
                }
                _ => {}
            }
            return;
        }
        let corners = shape::corners(kind, *center, *width, *height);
        let points: Vec<_> =
            corners.iter().map(|corner| format!("{:.1},{:.1}", corner.x, corner.y)).collect();
        self.write(format_args!("<polygon class=\"shape\" points=\"{}\"/>", points.join(" ")));
    }

    fn label(&mut self, placed: &PlacedNode) {
        let subtitle = subtitle(self.workflow, placed.node);
        let lines = placed.label.len() + usize::from(!subtitle.is_empty());
        // The house has its text below the roof.
        let is_house = self.workflow.node(placed.node).kind == NodeKind::ManagerLoop;
        let middle = placed.center.y + if is_house { 7.0 } else { 0.0 };
        let top = middle - (number(lines) * LINE - 2.0) / 2.0;
        for (at, line) in placed.label.iter().enumerate() {
            self.write(format_args!(
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                placed.center.x,
                top + LINE * (number(at) + 0.75),
                escaped(line)
            ));
        }
        if !subtitle.is_empty() {
            self.write(format_args!(
                "<text class=\"kind\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                placed.center.x,
                top + LINE * (number(placed.label.len()) + 0.68),
                escaped(&subtitle)
            ));
        }
    }

    /// Visits and time, at the upper right corner.
    fn badge(&mut self, placed: &PlacedNode, mark: NodeMark) {
        let visits = if mark.visits > 1 { format!("{}× ", mark.visits) } else { String::new() };
        let text = format!("{} {visits}{}", mark.result.sign(), time(mark.duration_ms));
        let wide = number(width(&text)) * 6.2 + 10.0;
        let x = placed.center.x + placed.width / 2.0 - wide + 10.0;
        let y = placed.center.y - placed.height / 2.0 - 9.0;
        self.write(format_args!(
            "<g class=\"badge\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"16\" rx=\"8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            x + wide / 2.0,
            y + 12.0,
            escaped(&text)
        ));
    }

    fn taken(&self, edge: &PlacedEdge) -> u32 {
        let Some(marks) = self.marks else { return 0 };
        let label = edge.edge.and_then(|ix| self.workflow.edge(ix).label());
        let key = (
            self.workflow.node(edge.from).id.to_string(),
            self.workflow.node(edge.to).id.to_string(),
            label.map(str::to_owned),
        );
        // A jump has no label, nor has the edge beside it that was not taken.
        if edge.edge.is_none() && self.has_edge(edge.from, edge.to) {
            return 0;
        }
        marks.edges.get(&key).copied().unwrap_or(0)
    }

    fn has_edge(&self, from: NodeIx, to: NodeIx) -> bool {
        self.workflow.outgoing(from).any(|ix| {
            let edge = self.workflow.edge(ix);
            edge.to == to && edge.label().is_none()
        })
    }

    fn edge(&mut self, edge: &PlacedEdge, layout: &Layout) {
        let points = self.clipped(edge, layout);
        let taken = self.taken(edge);
        let is_restart = edge.edge.is_some_and(|ix| {
            self.workflow
                .edge(ix)
                .attrs
                .get("loop_restart")
                .is_some_and(|it| it.value.as_text() == "true")
        });
        let mut classes = String::from("edge");
        for (class, holds) in [
            ("jump", edge.edge.is_none()),
            ("restart", is_restart),
            ("taken", taken > 0),
            ("untaken", self.marks.is_some() && taken == 0),
        ] {
            if holds {
                classes.push(' ');
                classes.push_str(class);
            }
        }
        let head = if taken > 0 { "arrow-taken" } else { "arrow" };
        self.write(format_args!(
            "<path class=\"{classes}\" marker-end=\"url(#fabro-{head})\" d=\"{}\"/>\n",
            curve(&points)
        ));
    }

    /// The way of an edge from outline to outline.
    fn clipped(&self, edge: &PlacedEdge, layout: &Layout) -> Vec<Place> {
        let mut points = edge.points.clone();
        let node = |ix: NodeIx| layout.nodes.iter().find(|placed| placed.node == ix);
        let clip = |ix: NodeIx, outside: Place| {
            let placed = node(ix)?;
            let kind = self.workflow.node(ix).kind;
            let corners = shape::corners(kind, placed.center, placed.width, placed.height);
            Some(shape::crossing(&corners, placed.center, outside))
        };
        let last = points.len().saturating_sub(1);
        if points.len() < 2 || edge.from == edge.to {
            return points;
        }
        if let Some(place) = clip(edge.from, points[1]) {
            points[0] = place;
        }
        if let Some(place) = clip(edge.to, points[last - 1]) {
            points[last] = place;
        }
        points
    }

    fn edge_label(&mut self, edge: &PlacedEdge) {
        let taken = self.taken(edge);
        let count = if taken > 1 { format!("{taken}×") } else { String::new() };
        let (width, height) = edge.label.size();
        let Place { x, y } = edge.label_at;
        if edge.label.lines() == 0 && count.is_empty() {
            return;
        }
        let at = match edge.points.get(edge.points.len() / 2) {
            Some(middle) if edge.label.lines() == 0 => *middle,
            _ => Place { x, y },
        };
        let width = width.max(number(count.len()) * 6.0);
        let height = height.max(16.0);
        self.write(format_args!(
            "<g class=\"edge-label\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>",
            at.x - width / 2.0,
            at.y - height / 2.0
        ));
        let mut line_at = at.y - height / 2.0 + LINE - 4.0;
        let label = edge.label.label.iter().map(|line| ("name", line));
        let condition = edge.label.condition.iter().map(|line| ("condition", line));
        let taken = Some(("count", &count)).filter(|_| edge.label.lines() == 0);
        for (class, line) in label.chain(condition).chain(taken) {
            self.write(format_args!(
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{line_at:.1}\">{}</text>",
                at.x,
                escaped(line)
            ));
            line_at += LINE - 2.0;
        }
        self.out.push_str("</g>\n");
    }

    /// What the colors mean, of those that are there.
    fn legend(&mut self, layout: &Layout) {
        let Some(marks) = self.marks else { return };
        let there: BTreeSet<NodeResult> = marks.nodes.values().map(|mark| mark.result).collect();
        let words = NodeResult::ALL.iter().filter(|result| there.contains(result));
        let mut words: Vec<&str> = words.map(|result| result.word()).collect();
        if self.workflow.nodes().any(|node| !marks.nodes.contains_key(&*node.id)) {
            words.push("unreached");
        }
        let y = layout.height + 6.0;
        let mut x = 16.0;
        self.out.push_str("<g class=\"legend\">");
        for word in words {
            let text = if word == "unreached" { "not reached" } else { word };
            self.write(format_args!(
                "<g class=\"node {word}\"><rect class=\"shape\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"14\" height=\"12\" rx=\"3\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{text}</text></g>",
                x + 20.0,
                y + 10.5
            ));
            x += 34.0 + number(text.len()) * 7.0;
        }
        self.out.push_str("</g>\n");
    }
}

/// A smooth line through the middles between points, from the first to the last.
fn curve(points: &[Place]) -> String {
    let Some((first, rest)) = points.split_first() else { return String::new() };
    let mut path = format!("M{:.1} {:.1}", first.x, first.y);
    let Some((last, inner)) = rest.split_last() else { return path };
    for (at, point) in inner.iter().enumerate() {
        let next = inner.get(at + 1).unwrap_or(last);
        // The last bend ends at the end itself.
        let end = if at + 1 == inner.len() {
            *last
        } else {
            Place { x: f64::midpoint(point.x, next.x), y: f64::midpoint(point.y, next.y) }
        };
        let _ = write!(path, " Q{:.1} {:.1} {:.1} {:.1}", point.x, point.y, end.x, end.y);
    }
    if inner.is_empty() {
        let _ = write!(path, " L{:.1} {:.1}", last.x, last.y);
    }
    path
}
