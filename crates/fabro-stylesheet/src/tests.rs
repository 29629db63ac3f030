use std::fmt::Write as _;

use proptest::prelude::*;

use crate::{Selector, Stylesheet, Subject, SyntaxError};

/// The properties of a node given as `shape#id.class.class`.
#[track_caller]
fn check(sheet: &str, node: &str, expected: &str) {
    let sheet = Stylesheet::parse(sheet).unwrap_or_else(|error| panic!("{error}"));
    let (head, classes) = node.split_once('.').unwrap_or((node, ""));
    let (shape, id) = head.split_once('#').unwrap();
    let classes: Vec<_> =
        classes.split('.').filter(|class| !class.is_empty()).map(str::to_owned).collect();
    let properties = sheet.properties(&Subject { id, shape, classes: &classes });
    let shown: Vec<_> = properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(shown.join(" "), expected, "{node}");
}

/// An error as it is shown: the line, a mark under the place, the message and the fix.
#[track_caller]
fn error(text: &str) -> String {
    shown(text, &Stylesheet::parse(text).expect_err("should not parse"))
}

/// The only property that there is not, shown in the same way.
#[track_caller]
fn unknown(text: &str) -> String {
    let sheet = Stylesheet::parse(text).expect("should parse");
    let [unknown] = sheet.unknown_properties() else { panic!("{:?}", sheet.unknown) };
    assert!(sheet.rules()[0].declarations.is_empty());
    shown(text, unknown)
}

fn shown(text: &str, error: &SyntaxError) -> String {
    let width = text[error.span.start..error.span.end].chars().count().max(1);
    let indent = text[..error.span.start].chars().count();
    let mut shown = format!("{text}\n{:indent$}{} {error}", "", "^".repeat(width));
    if let Some(fix) = &error.fix {
        write!(shown, "; {fix}").unwrap();
    }
    shown
}

const SHEET: &str = "
    * { llm_model: one; provider: p; speed: fast }
    #n { max_tokens: 4096; }
    .hard { model: hard; reasoning_effort: high; }
    box { model: boxed; reasoning_effort: low; backend: cli; }
    .cheap { model: cheap; }
    #n { backend: acp; backend: api }
";

#[test]
fn the_more_specific_rule_wins_then_the_later() {
    check(SHEET, "tab#x", "model=one provider=p speed=fast");
    check(SHEET, "box#x", "model=boxed provider=p reasoning_effort=low speed=fast backend=cli");
    check(
        SHEET,
        "box#x.hard",
        "model=hard provider=p reasoning_effort=high speed=fast backend=cli",
    );
    check(SHEET, "tab#x.hard.cheap", "model=cheap provider=p reasoning_effort=high speed=fast");
    check(SHEET, "tab#x.cheap.hard", "model=cheap provider=p reasoning_effort=high speed=fast");
    check(SHEET, "tab#n", "model=one provider=p speed=fast backend=api max_tokens=4096");
    check(SHEET, "tab#x.Hard", "model=one provider=p speed=fast");
    check("* { model: a } * { model: b }", "box#x", "model=b");
    check("* { model: b } * { provider: c }", "box#x", "model=b provider=c");
    check("", "box#x", "");
}

#[test]
fn everything_that_may_be_written() {
    check("*{model:a}", "box#x", "model=a");
    check("* { } .x {;} #y { ;; }", "box#x", "");
    check("* { model: a;; provider: b;;; }", "box#x", "model=a provider=b");
    check("/* c { */ * /* d */ { model /**/ : /* ; */ a /* } */ ; }", "box#x", "model=a");
    check("* { model: vendor/gpt-5.2:free@1,x; }", "box#x", "model=vendor/gpt-5.2:free@1,x");
    check("* { model: \"a b; }\"; provider: 'c' }", "box#x", "model=a b; } provider=c");
    check(".loop-a { model: a } .café { model: b }", "box#x.loop-a.café", "model=b");
    check("Mdiamond { model: a }", "Mdiamond#start", "model=a");
}

#[test]
fn rules_are_told_for_lints() {
    let sheet = Stylesheet::parse("* { model: a }\n.b { llm_provider: 'c' }").unwrap();
    let rule = &sheet.rules()[1];
    let declaration = &rule.declarations[0];
    assert_eq!((rule.selector.to_string().as_str(), rule.span.start), (".b", 15));
    assert_eq!((declaration.property, &*declaration.value), ("provider", "c"));
    assert_eq!(sheet.rules()[0].selector, Selector::Any);
}

#[test]
fn errors_point_and_help() {
    insta::assert_snapshot!(error("* { model: foo;"), @r"
* { model: foo;
               ^ expected a property or `}`, found the end
");
    insta::assert_snapshot!(unknown("* { modle: foo }"), @r"
* { modle: foo }
    ^^^^^ `modle` is not a property of a stylesheet; did you mean `model`?
");
    insta::assert_snapshot!(unknown("* { reasoning-effort: low }"), @r"
* { reasoning-effort: low }
    ^^^^^^^^^^^^^^^^ `reasoning-effort` is not a property of a stylesheet; did you mean `reasoning_effort`?
");
    insta::assert_snapshot!(unknown("* { color: red }"), @r"
* { color: red }
    ^^^^^ `color` is not a property of a stylesheet; the properties are model, provider, reasoning_effort, speed, backend, max_tokens
");
    insta::assert_snapshot!(error("* { reasoning_effort: extreme }"), @r"
    * { reasoning_effort: extreme }
                          ^^^^^^^^ reasoning_effort cannot be `extreme`: not one of its values; write none, minimal, low, medium, high, xhigh or max
    ");
    insta::assert_snapshot!(error("* { backend: http }"), @r"
* { backend: http }
             ^^^^^ backend cannot be `http`: not one of its values; write api, cli or acp
");
    insta::assert_snapshot!(error("* { max_tokens: 0 }"), @r"
* { max_tokens: 0 }
                ^^ max_tokens cannot be `0`: not a positive integer; write a number such as 4096
");
    insta::assert_snapshot!(error("* { model: ; }"), @r"
* { model: ; }
           ^ expected a value, found `;`
");
    insta::assert_snapshot!(error("* { model: '' }"), @r"
* { model: '' }
           ^^ model cannot be ``: the value is empty; write a value, or remove the property
");
    insta::assert_snapshot!(error("* { model: a provider: b }"), @r"
* { model: a provider: b }
           ^^^^^^^^^^^^^ a value without quotes is one word; add the missing `;`, or put the value in quotes
");
    insta::assert_snapshot!(error("* { model: \"a; } /* b */"), @r#"
* { model: "a; } /* b */
           ^ the quote is not closed; add a `"`
"#);
    insta::assert_snapshot!(error("* { garbage garbage }"), @r"
* { garbage garbage }
            ^^^^^^^ expected `:`, found `garbage`
");
    insta::assert_snapshot!(error("{ model: a }"), @r"
{ model: a }
^ expected a selector, found `{`; a rule begins with `*`, a shape, `.class` or `#node_id`
");
    insta::assert_snapshot!(error("#opus"), @r"
#opus
     ^ expected `{`, found the end; write `{ property: value; }` after the selector
");
    insta::assert_snapshot!(error("#café { model: a }"), @r"
#café { model: a }
    ^ expected `{`, found `é`; write `{ property: value; }` after the selector
");
    insta::assert_snapshot!(error("böx { model: a }"), @r"
böx { model: a }
 ^^ expected `{`, found `öx`; write `{ property: value; }` after the selector
");
    insta::assert_snapshot!(error(".a, .b { model: a }"), @r"
.a, .b { model: a }
  ^ expected `{`, found `,`; write a separate rule for each selector
");
    insta::assert_snapshot!(error("box.hard { model: a }"), @r"
box.hard { model: a }
   ^ expected `{`, found `.`; write `{ property: value; }` after the selector
");
    insta::assert_snapshot!(error("* { model: a } /* open"), @r"
* { model: a } /* open
               ^^ the comment is not closed; add `*/`
");
    insta::assert_snapshot!(error("* { model: a } }"), @r"
* { model: a } }
               ^ expected a selector or the end, found `}`; a rule begins with `*`, a shape, `.class` or `#node_id`
");
    insta::assert_snapshot!(error("* { // note\n model: a }"), @r"
* { // note
 model: a }
    ^ expected a property or `}`, found `/`; write comments as `/* … */`
");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in r#"([*.#a{}:;"'/ ]|model|speed|é){0,24}|.{0,16}"#) {
        if let Err(error) = Stylesheet::parse(&text) {
            prop_assert!(text.get(error.span.start..error.span.end).is_some());
        }
    }

    #[test]
    fn what_is_written_is_read(rules in prop::collection::vec(
        (r"\*|box|\.[a-z-]{1,3}|#[a-z_]{1,3}", "[a-z0-9./:-]{1,8}"), 0..8,
    )) {
        let written = rules.iter().map(|(selector, value)| format!("{selector}{{speed:{value}}}"));
        let text = written.collect::<Vec<_>>().join(" ");
        let sheet = Stylesheet::parse(&text).unwrap();
        let read = sheet.rules().iter().map(|rule| {
            (rule.selector.to_string(), rule.declarations[0].value.clone())
        });
        prop_assert_eq!(read.collect::<Vec<_>>(), rules);
    }
}
