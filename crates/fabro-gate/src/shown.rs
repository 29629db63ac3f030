use fabro_events::ShownText;
use fabro_types::{RunId, excerpt};

/// The longest line, in characters.
const MAX_COLUMNS: usize = 400;

/// Formats a text of a gate for a terminal: its source, at most `max` lines, and how to read the rest.
/// `run` is the run that recorded it.
///
/// ```
/// use fabro_events::ShownText;
/// use fabro_gate::shown_lines;
/// use fabro_types::RunId;
///
/// let stage = Some("plan@1".to_owned());
/// let shown = ShownText { stage, key: None, text: "one\ntwo\nthree".into(), omitted: 0, blob: None };
/// let run = RunId::from_parts(0, 1);
/// let expect = ["plan@1:", "one", &format!("… 2 more lines: fabro inspect {run} plan@1")];
/// assert_eq!(shown_lines(&shown, Some(run), 1), expect);
/// ```
pub fn shown_lines(shown: &ShownText, run: Option<RunId>, max: usize) -> Vec<String> {
    let ShownText { stage, key, text, omitted, .. } = shown;
    let name = stage.as_ref().or(key.as_ref());
    let mut lines: Vec<String> = name.map(|name| format!("{name}:")).into_iter().collect();
    let mut rest = text.lines();
    lines.extend(rest.by_ref().take(max).map(|line| excerpt(line, MAX_COLUMNS).into_owned()));
    let left = rest.count();
    if left == 0 && *omitted == 0 {
        return lines;
    }
    let more = match (left, *omitted) {
        (left, 0) => format!("{left} more lines"),
        (0, omitted) => format!("{omitted} more characters"),
        (left, omitted) => format!("{left} more lines and {omitted} characters"),
    };
    lines.push(match (run, stage, key) {
        (Some(run), Some(stage), _) => format!("… {more}: fabro inspect {run} {stage}"),
        (Some(run), None, Some(_)) => format!("… {more}: fabro context {run}"),
        _ => format!("… {more}"),
    });
    lines
}
