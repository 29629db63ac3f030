use fabro_graph::{NodeKind, Origin};
use fabro_types::nearest;

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};

/// A shape that stands for no handler: an agent runs the node.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes() {
        let Some(attr) = node.attrs.get("shape") else { continue };
        let Some(shape) = text(&node.attrs, "shape") else { continue };
        let by_shape = text(&node.attrs, "type").is_none() && NodeKind::from_id(&node.id).is_none();
        if !by_shape || NodeKind::from_shape(shape).is_some() {
            continue;
        }
        let what = match attr.origin {
            Origin::Own => format!("`{}`", node.id),
            _ => "these nodes".to_owned(),
        };
        let message = format!("the shape `{shape}` stands for no handler; an agent runs {what}");
        let near = nearest(shape, NodeKind::ALL.iter().map(|kind| kind.shape()));
        let has_script = text(&node.attrs, "script").is_some();
        let fix = if let Some(kind) = NodeKind::from_type(shape) {
            format!("did you mean `type={shape}`? Its shape is {}", kind.shape())
        } else if has_script {
            "use parallelogram for a command".to_owned()
        } else {
            did_you_mean(near, "use box for an agent, or name what runs it with type=…")
        };
        findings.warning("unknown-shape", attr.span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_shape_stands_for_a_handler() {
        insta::assert_snapshot!(reported("unknown-shape", "start -> a -> b -> c -> exit; a [shape=circle]; b [shape=Hexagon]; c [shape=ellipse, type=command, script=x]"), @r"
        1:52 warning: the shape `circle` stands for no handler; an agent runs `a`
          at: circle
          fix: use box for an agent, or name what runs it with type=…
        1:70 warning: the shape `Hexagon` stands for no handler; an agent runs `b`
          at: Hexagon
          fix: did you mean `hexagon`?
        ");
        insta::assert_snapshot!(reported("unknown-shape", "node [shape=ellipse]; start -> a -> b -> exit"), @r"
        1:25 warning: the shape `ellipse` stands for no handler; an agent runs these nodes
          at: ellipse
          fix: use box for an agent, or name what runs it with type=…
        ");
        insta::assert_snapshot!(reported("unknown-shape", "start -> a -> exit; a [shape=wait, duration=1s]"), @r"
        1:42 warning: the shape `wait` stands for no handler; an agent runs `a`
          at: wait
          fix: did you mean `type=wait`? Its shape is insulator
        ");
        insta::assert_snapshot!(reported("unknown-shape", "start -> a -> exit; a [shape=rectangle, script=make]"), @r"
        1:42 warning: the shape `rectangle` stands for no handler; an agent runs `a`
          at: rectangle
          fix: use parallelogram for a command
        ");
        insta::assert_snapshot!(reported("unknown-shape", "start -> a -> exit; a [shape=box]; start [shape=circle]"), @"nothing");
    }
}
