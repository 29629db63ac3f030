use fabro_graph::{MAX_FILE_BYTES, MAX_PARTS, Workflow, format, parse};

/// The rules of the errors of a source; it also goes through everything else that reads it.
#[track_caller]
fn rules(source: &str) -> Vec<&'static str> {
    match parse(source) {
        Err(error) => {
            assert!(source.is_char_boundary(error.span.start), "{error:?}");
            assert!(source.is_char_boundary(error.span.end), "{error:?}");
            assert_eq!(Workflow::from_source("x", source).unwrap_err(), error);
            vec![error.rule]
        }
        Ok(document) => {
            let workflow = Workflow::from_source("x", source).unwrap();
            assert!(!format(&document).is_empty());
            assert!(!workflow.to_dot().is_empty());
            workflow.findings().iter().map(|finding| finding.rule).collect()
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize, open: &str| {
        format!("digraph {{ {}{} }}", open.repeat(depth), "}".repeat(depth))
    };
    for open in ["{", "subgraph { ", "subgraph s { a -> "] {
        let depth = if open.contains("->") { 127 } else { 128 };
        let inner = if open.contains("->") { "{ b }" } else { "" };
        let fits = format!("digraph {{ {}{inner}{} }}", open.repeat(depth), "}".repeat(depth));
        assert_eq!(rules(&fits), [""; 0], "{open}");
        assert_eq!(rules(&nested(129, open)), ["nesting-too-deep"], "{open}");
        assert_eq!(rules(&nested(100_000, open)), ["nesting-too-deep"], "{open}");
    }
    assert_eq!(rules(&"{".repeat(100_000)), ["nesting-too-deep"]);
    assert_eq!(rules(&format!("digraph {{ a [x=\"{}\"] // {{{{\n }}", "{".repeat(1000))), [""; 0]);
}

#[test]
fn the_size_is_bounded() {
    let source = "x".repeat(MAX_FILE_BYTES + 1);
    assert_eq!(rules(&source), ["file-too-large"]);
}

#[test]
fn the_number_of_parts_is_bounded() {
    let filled = |part: &str, count: usize| format!("digraph {{ {} }}", part.repeat(count));
    // `digraph` and the brace are two.
    assert_eq!(rules(&filled("a;", MAX_PARTS - 2)), [""; 0]);
    let parts = [
        ("a;", 1),
        ("a->", 1),
        ("a[]", 2),
        ("a[x=1]", 4),
        ("x=1 ", 2),
        ("{a}", 2),
        ("\"\"", 1),
        ("é ", 1),
    ];
    for (part, count) in parts {
        let error = parse(&filled(part, MAX_PARTS / count)).unwrap_err();
        assert_eq!(error.rule, "too-large", "{part}");
    }
    // What is inside a string or a comment is text.
    let text = "a ".repeat(MAX_PARTS);
    assert_eq!(rules(&format!("digraph {{ a [prompt=\"{text}\"] /* {text} */ }}")), [""; 0]);
}

#[test]
fn what_multiplies_is_bounded() {
    let ids = |prefix: &str| (0..1_000).map(|at| format!("{prefix}{at} ")).collect::<String>();
    assert_eq!(
        rules(&format!("digraph {{ {{ {} }} -> {{ {} }} }}", ids("a"), ids("b"))),
        ["too-large"]
    );
    let labels: String = (0..100).map(|at| format!("subgraph {{ label=l{at} ")).collect();
    let nested = format!("digraph {{ {labels} {} {} {} }}", ids("a"), ids("b"), ids("c"));
    assert_eq!(rules(&(nested + &"}".repeat(100))), ["too-large"]);
    let defaults: String = (0..2_000).map(|at| format!("k{at}=1 ")).collect();
    assert_eq!(rules(&format!("digraph {{ node [{defaults}] {} }}", ids("a"))), [""; 0]);
    assert_eq!(rules(&format!("digraph {{ a{} [{defaults}] }}", " -> a".repeat(2_000))), [""; 0]);
    let many: String = (0..11_000).map(|at| format!("k{at}=1 ")).collect();
    assert_eq!(rules(&format!("digraph {{ node [{many}] {} }}", ids("a"))), ["too-large"]);
    let edges: String = (0..1_000).map(|at| format!("a{at} -> ")).collect();
    let late = format!("digraph {{ {edges} end node [{many}] {} }}", ids("a"));
    assert_eq!(rules(&late), ["too-large"]);
    let bad: String = (0..3_000).map(|at| format!("\"a {at}\" ")).collect();
    assert_eq!(rules(&format!("digraph {{ {bad} }}")).len(), 1_000);
}

#[test]
fn rubbish_is_refused_quickly() {
    let binary: String = (0..200_000_u32).filter_map(|at| char::from_u32(at % 0x300)).collect();
    for source in [
        "\"".repeat(1_000_000),
        format!("digraph {{ a [x={}", "\"".repeat(1_000_000)),
        format!("digraph {{ a [x=\"{}", "\\".repeat(1_000_000)),
        format!("digraph {{ {}", "/*".repeat(100_000)),
        format!("digraph {{ {}", "/".repeat(1_000_000)),
        format!("digraph {{ a {}", "[".repeat(100_000)),
        format!("digraph {{ a {}", "-".repeat(100_000)),
        format!("digraph {{}} {}", "x ".repeat(100_000)),
        "\0".repeat(1_000_000),
        binary,
    ] {
        assert_eq!(rules(&source).len(), 1);
    }
}

#[test]
fn long_but_right_is_read() {
    for source in [
        format!("digraph {{ a{} }}", "->a".repeat(10_000)),
        format!("digraph {{ a [x=\"a\"{}] }}", "+\"a\"".repeat(10_000)),
        format!("digraph {{ a [{}] }}", "x=1 /*c*/ ".repeat(10_000)),
        format!("digraph {{ {} }}", "a //c\n".repeat(10_000)),
        format!("digraph {{ {} }}", "\n\n".repeat(50_000)),
        format!("digraph {{ a [x={}] }}", "9".repeat(50_000)),
    ] {
        assert_eq!(rules(&source), [""; 0]);
    }
}
