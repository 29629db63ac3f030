use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Condition, find};

type Context = BTreeMap<String, Value>;

fn context(value: Value) -> Context {
    serde_json::from_value(value).unwrap()
}

/// Evaluates conditions over one context, each with its expected result.
#[track_caller]
fn check(values: &Value, cases: &[(&str, bool)]) {
    let context = context(values.clone());
    for (text, expected) in cases {
        let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(condition.holds(&context), *expected, "{text}");
        assert_eq!(condition.holds(values), *expected, "{text} on JSON");
        assert_eq!(condition.explain(&context).holds, *expected, "explain {text}");
        let printed = condition.to_string();
        assert_eq!(Condition::parse(&printed).as_ref(), Ok(&condition), "{text} as {printed}");
    }
}

/// The canonical text.
#[track_caller]
fn canonical(text: &str) -> String {
    Condition::parse(text).unwrap().to_string()
}

/// An error as it is shown: the text, the span underlined, the message and the fix.
#[track_caller]
fn error(text: &str) -> String {
    let error = Condition::parse(text).expect_err("should not parse");
    let width = text[error.span.start..error.span.end].chars().count().max(1);
    let indent = text[..error.span.start].chars().count();
    let mut shown = format!("{text}\n{:indent$}{} {error}", "", "^".repeat(width));
    if let Some(fix) = &error.fix {
        write!(shown, "; {fix}").unwrap();
    }
    shown
}

#[test]
fn operators_compare_texts_and_numbers() {
    check(
        &json!({"name": "Ada", "score": 85, "text_score": " 85 ", "ratio": 0.5, "float": 80.0, "ok": true,
               "tags": ["a b", 7, null], "map": {"k": [1, "x"]}, "nothing": null, "word": "nan"}),
        &[
            ("name = Ada", true),
            ("name == Ada", true),
            ("name = ada", false),
            ("name != ada", true),
            ("score = 85", true),
            ("score = 85.0", false),
            ("float = 80.0", true),
            ("float = 80", false),
            ("score = 8", false),
            ("score = 855", false),
            ("score > 84.9", true),
            ("score > 85", false),
            ("score >= 85", true),
            ("score <= 85", true),
            ("score < 1e3", true),
            ("text_score >= 85", true),
            ("text_score = 85", false),
            ("ratio > .4", true),
            ("ratio > -1", true),
            ("ratio < +1", true),
            ("name > 1", false),
            ("name < 1", false),
            ("score > many", false),
            ("score > ", false),
            ("word > 0", false),
            ("score < inf", false),
            ("missing < 1", false),
            ("ok > 0", false),
            ("ok = true", true),
            ("map = {\"k\":[1,\"x\"]}", true),
            ("map contains [1,", true),
            ("tags contains a b", true),
            ("tags contains a", false),
            ("tags contains 7", true),
            ("tags contains", true),
            ("name contains d", true),
            ("name contains D", false),
            ("score contains 5", true),
            ("name matches ^A.a$", true),
            ("name matches d", true),
            ("missing matches ^$", true),
            ("score matches ^\\d+$", true),
            ("nothing = ", true),
            ("missing=", true),
            ("missing = \"\"", true),
            ("missing != x", true),
        ],
    );
}

#[test]
fn large_whole_numbers_keep_their_last_digit() {
    check(
        &json!({"id": 9_007_199_254_740_993_i64, "huge": u64::MAX}),
        &[
            ("id > 9007199254740992", true),
            ("id <= 9007199254740992", false),
            ("huge > 18446744073709551614", true),
        ],
    );
}

#[test]
fn a_key_alone_is_true_unless_empty_false_or_zero() {
    check(
        &json!({"yes": "yes", "t": true, "f": false, "tf": "false", "zero": 0, "tz": "0", "none": null,
               "empty": "", "one": 1, "blank": " ", "list": []}),
        &[
            ("yes", true),
            ("context.yes", true),
            ("t", true),
            ("f", false),
            ("tf", false),
            ("zero", false),
            ("tz", false),
            ("none", false),
            ("empty", false),
            ("missing", false),
            ("one", true),
            ("blank", true),
            ("list", true),
            ("!missing", true),
            ("!!yes", true),
            ("!!!yes", false),
        ],
    );
}

#[test]
fn and_binds_tighter_than_or_and_not_tightest() {
    check(
        &json!({"a": "1", "b": "0"}),
        &[
            ("a || b && b", true),
            ("(a || b) && b", false),
            ("!b && a", true),
            ("!b=0 || !a=1", false),
            ("!(b || a)", false),
            ("! ( b )", true),
            ("a=1&&b=0", true),
            ("a=1||b=1", true),
            ("a = 1\n  && b = 0", true),
            ("((a))", true),
            ("", true),
            ("  \n ", true),
        ],
    );
}

#[test]
fn values_end_where_the_clause_ends() {
    check(
        &json!({"m": "a (b) c", "q": "say \"hi\" && go", "p": "x)", "back": "C:\\", "re": "v1|v2", "v": "v12"}),
        &[
            ("m = a (b) c", true),
            ("(m = a (b) c)", true),
            ("(m=a (b) c && v)", true),
            ("m matches ^a \\(b\\) c$", true),
            ("(p matches \\)$)", true),
            ("p = \"x)\"", true),
            ("q = \"say \\\"hi\\\" && go\"", true),
            ("q contains hi\" && go", false),
            ("m contains say \"a && b\" x || v", true),
            ("back = C:\\", true),
            ("back = \"C:\\\\\"", true),
            ("re = v1|v2", true),
            ("v matches ^v(1|2)+$", true),
            ("v matches \"^v\\d+$\"", true),
            ("(v matches ^v(1|2) || missing)", true),
            ("m contains (b", true),
        ],
    );
}

#[test]
fn keys_are_literal_then_short_then_paths() {
    check(
        &json!({"context.k": "literal", "k": "short", "output.audit": {"score": 91, "tags": ["x", {"n": 1}]},
               "output": {"audit": {"score": 1, "more": true}, "a.b": "dotted"}, "a.b": "flat", "a": {"b": "path"},
               "context.deep": {"x": 3}, "null": null, "internal.node_visit_count": 5}),
        &[
            ("context.k = literal", true),
            ("k = short", true),
            ("a.b = flat", true),
            ("context.a.b = flat", true),
            ("output.audit.score = 91", true),
            ("context.output.audit.score > 90", true),
            ("output.audit.more", true),
            ("output.audit.tags.0 = x", true),
            ("output.audit.tags.1.n = 1", true),
            ("output.audit.tags.2 = ", true),
            ("output.a.b = dotted", true),
            ("context.deep.x = 3", true),
            ("context.null = ", true),
            ("a.b.c", false),
            ("context.internal.node_visit_count >= 5", true),
        ],
    );
}

#[test]
fn both_spellings_of_a_status_are_equal() {
    check(
        &json!({"outcome": "succeeded", "parallel.fan_in.best_outcome": "partially_succeeded", "status": "succeeded"}),
        &[
            ("outcome=success", true),
            ("outcome = succeeded", true),
            ("outcome != success", false),
            ("outcome != fail", true),
            ("context.outcome = success", true),
            ("parallel.fan_in.best_outcome = partial_success", true),
            ("context.parallel.fan_in.best_outcome == partially_succeeded", true),
            ("outcome matches ^(success|partial_success)$", true),
            ("outcome matches ^succeeded$", true),
            ("outcome contains fail", false),
            ("status = success", false),
            ("outcome", true),
        ],
    );
    check(
        &json!({"outcome": "failure"}),
        &[("outcome=failed", true), ("outcome=fail", true), ("outcome=success", false)],
    );
    check(
        &json!({"outcome": "needs_dod"}),
        &[
            ("outcome=needs_dod", true),
            ("outcome!=needs_dod", false),
            ("outcome=success", false),
            ("outcome matches _dod$", true),
        ],
    );
}

#[test]
fn canonical_text_is_short_and_reads_back() {
    insta::assert_snapshot!(canonical("a=1&&(b==2&&!(!(c)))||((d!=\"x y\"))"), @"a = 1 && b = 2 && c || d != x y");
    insta::assert_snapshot!(canonical("(a||b)&&!(c||d)&&!(e && f)"), @"(a || b) && !(c || d) && !(e && f)");
    insta::assert_snapshot!(canonical("a=  && b=\"a || b\" && c = \"\\\"\""), @r#"a = "" && b = "a || b" && c = "\"""#);
    insta::assert_snapshot!(canonical("v matches ^v\\d+(x|y)$"), @r"v matches ^v\d+(x|y)$");
    insta::assert_snapshot!(canonical(" "), @"");
}

#[test]
fn errors_point_and_help() {
    insta::assert_snapshot!(error("outcome=success &&"), @r"
outcome=success &&
                  ^ expected a condition, found the end
");
    insta::assert_snapshot!(error("ready and tested"), @r"
ready and tested
      ^^^ expected an operator, `&&`, `||` or the end, found `and`; write `&&` for and
");
    insta::assert_snapshot!(error("a & b"), @r"
a & b
  ^ expected an operator, `&&`, `||` or the end, found `&`; write `&&` for and
");
    insta::assert_snapshot!(error("80 <= score"), @r"
80 <= score
^^ expected a condition, found `80`; begin with a key: a word that begins with a letter, not quoted
");
    insta::assert_snapshot!(error("\"score\" > 80"), @r#"
"score" > 80
^ expected a condition, found a quoted string; begin with a key: a word that begins with a letter, not quoted
"#);
    insta::assert_snapshot!(error("kind = 'a && b'"), @r#"
kind = 'a && b'
              ^ expected an operator, `&&`, `||` or the end, found `'`; quote the value with `"`: single quotes are a part of it, and do not hold it together
"#);
    insta::assert_snapshot!(error("(a = 1 && b"), @r"
(a = 1 && b
           ^ expected an operator, `&&`, `)` or `||`, found the end
");
    insta::assert_snapshot!(error("a = 1) && b"), @r"
a = 1) && b
     ^ expected `&&`, `||` or the end, found `)`; add the opening parenthesis, or put the value that it belongs to in quotes
");
    insta::assert_snapshot!(error("label = \"Yes\" please && b"), @r#"
label = "Yes" please && b
        ^^^^^^^^^^^^^ there is text after the closing quote; put the whole value in quotes, or join the clauses with `&&` or `||`
"#);
    insta::assert_snapshot!(error("label = \"Yes && b"), @r#"
label = "Yes && b
        ^^^^^^^^^ the quote is not closed; add a `"`, or write `\"` for a quote inside a quoted value
"#);
    insta::assert_snapshot!(error("v =~ x || && y"), @r"
v =~ x || && y
          ^ expected a condition, found `&`
");
    insta::assert_snapshot!(error("a ~ b"), @r"
a ~ b
  ^ expected an operator, `&&`, `||` or the end, found `~`; write `matches` for a regular expression
");
    for (text, fix) in [
        ("outcome is success", "write `=`"),
        ("a == b && score gte 80", "write `>=`"),
        ("a := b", "write `=`"),
        ("title startsWith Fix", "`matches`"),
        ("not outcome=success", "write `!`"),
        ("a && (NOT b)", "write `!`"),
        ("nota outcome=success", "write clauses such as"),
    ] {
        let error = error(text);
        assert_eq!(error.contains(fix), !fix.contains("clauses"), "{error}");
    }
    insta::assert_snapshot!(error("ä.b. = 1"), @r"
ä.b. = 1
   ^ expected an operator, `&&`, `||` or the end, found `.`
");
    insta::assert_snapshot!(error("()"), @r"
()
 ^ expected a condition, found `)`
");
    insta::assert_snapshot!(error("v matches (x"), @r"
v matches (x
          ^^ invalid regular expression: unclosed group
");
    insta::assert_snapshot!(error("a && v matches \"(?=x)\""), @r#"
a && v matches "(?=x)"
               ^^^^^^^ invalid regular expression: look-around, including look-ahead and look-behind, is not supported
"#);
    insta::assert_snapshot!(error("v matches (((a{100}){100}){100})"), @r"
v matches (((a{100}){100}){100})
          ^^^^^^^^^^^^^^^^^^^^^^ the regular expression is too large; use fewer or smaller repetitions such as `{1000}`
");
}

#[test]
fn keys_and_outcome_words_are_listed() {
    let condition = Condition::parse(
        "outcome=needs_dod || context.outcome != \"other\" && context.score > 1 || !done && outcome contains x",
    )
    .unwrap();
    assert_eq!(
        condition.keys().collect::<Vec<_>>(),
        ["outcome", "outcome", "score", "done", "outcome"]
    );
    assert_eq!(condition.outcome_words().collect::<Vec<_>>(), ["needs_dod", "other"]);
    let clause = &condition.clauses()[2];
    assert_eq!((clause.key(), clause.text()), ("context.score", "context.score > 1"));
    assert!(!condition.is_always());
    assert!(Condition::parse(" ").unwrap().is_always());
}

#[test]
fn explain_lists_every_clause() {
    let context = context(json!({"a": "x".repeat(300), "n": 5}));
    let result =
        Condition::parse("n > 9 && (a || context.list contains x)").unwrap().explain(&context);
    let clauses: Vec<_> = result
        .clauses
        .iter()
        .map(|clause| (clause.text.as_str(), clause.value.chars().count(), clause.holds))
        .collect();
    assert_eq!(
        (result.holds, clauses),
        (false, vec![("n > 9", 1, false), ("a", 200, true), ("context.list contains x", 0, false)])
    );
}

#[test]
fn values_can_be_found_before_evaluation() {
    let context = context(json!({"a": {"b": [1, "x"]}, "a.b": "flat", "gone": {}}));
    let get = |key: &str| match key {
        "gone" => Err("gone"),
        "made" => Ok(Some(Cow::Owned(json!({"up": [1]})))),
        _ => Ok(context.get(key).map(Cow::Borrowed)),
    };
    let found = |key| find(key, get).map(|value| value.map(Cow::into_owned));
    assert_eq!(found("context.a.b"), Ok(Some(json!("flat"))));
    assert_eq!(found("context.a.b.1"), Ok(Some(json!("x"))));
    assert_eq!(found("made.up.0"), Ok(Some(json!(1))));
    assert_eq!(found("made.down"), Ok(None));
    assert_eq!(found("gone.x"), Err("gone"));
}

#[test]
fn long_and_deep_conditions_are_fine_or_refused() {
    let chain = vec!["a"; 100_000].join(" && ");
    let condition = Condition::parse(&chain).unwrap();
    assert!(condition.holds(&context(json!({"a": 1}))));
    assert_eq!(condition.to_string(), chain);

    let nots = format!("{}a", "!".repeat(100_001));
    assert_eq!(canonical(&nots), "!a");

    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(canonical(&nested(128)), "a");
    for text in [
        nested(129),
        "(".repeat(100_000),
        format!("a = {}", "(".repeat(100_000)),
        "!(".repeat(100_000),
    ] {
        let error = Condition::parse(&text).unwrap_err();
        assert_eq!(error.message, "parentheses are nested more than 128 deep");
    }
    let open = format!("a = {}", "(x".repeat(128));
    assert_eq!(Condition::parse(&open).unwrap().clauses()[0].value(), Some(&open[4..]));
    assert!(Condition::parse(&format!("a = {}", "\"".repeat(100_001))).is_err());
    assert!(Condition::parse(&"a.".repeat(50_000)).is_err());
    let text = format!("a = {}", "x".repeat(1024 * 1024 - 4));
    assert!(Condition::parse(&text).is_ok());
    let error = Condition::parse(&(text + "x")).unwrap_err();
    assert_eq!(error.message, "the condition has 1048577 bytes, the limit is 1048576");
    let key = vec!["a"; 257].join(".");
    assert_eq!(Condition::parse(&key).unwrap_err().message, "the key is longer than 512 bytes");
}

/// A condition out of keys, operators and arbitrary values, as text.
fn any_condition() -> impl Strategy<Value = String> {
    let operator = prop::sample::select(vec!["=", "==", "!=", ">", "<", ">=", "<=", "contains"]);
    let value = prop_oneof![
        "[a-z0-9 ]{0,6}",
        r#"[a-c\\"() &|=!]{0,8}"#
            .prop_map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))),
    ];
    let clause = prop_oneof![
        "[a-c](\\.[a-c0-9](-*[a-c0-9]){0,3})?",
        ("(context\\.)?[a-c_]", operator, value)
            .prop_map(|(key, operator, value)| format!("{key} {operator} {value}")),
    ];
    clause.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.join(" && ")),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.join("||")),
            inner.clone().prop_map(|inner| format!("!{inner}")),
            inner.prop_map(|inner| format!("({inner})")),
        ]
    })
}

proptest! {
    #[test]
    fn printing_reads_back(text in any_condition()) {
        let condition = Condition::parse(&text).unwrap();
        let printed = condition.to_string();
        let again = Condition::parse(&printed).unwrap();
        prop_assert_eq!(&again, &condition);
        prop_assert_eq!(again.to_string(), printed);
    }

    #[test]
    fn explaining_agrees_with_holding(text in any_condition(), a in ".{0,3}", b in any::<i32>()) {
        let context = context(json!({"a": a, "b": {"a": b, "b": [a]}, "context.c": b}));
        let condition = Condition::parse(&text).unwrap();
        prop_assert_eq!(condition.holds(&context), condition.explain(&context).holds);
    }

    #[test]
    fn any_text_is_read_or_refused(text in r#"[ab.0=!<>&|()"\\ é-]{0,24}|.{0,16}"#) {
        match Condition::parse(&text) {
            Ok(condition) => {
                prop_assert_eq!(Condition::parse(&condition.to_string()).unwrap(), condition);
            }
            Err(error) => prop_assert!(text.get(error.span.start..error.span.end).is_some()),
        }
    }
}

#[test]
fn negated_words() {
    let context = json!({"text": "all tests passed", "list": ["a", "b"], "outcome": "succeeded"});
    for (condition, holds) in [
        ("text !contains failed", true),
        ("text !contains passed", false),
        ("text ! contains passed", false),
        ("list !contains c", true),
        ("list !contains a", false),
        ("missing !contains a", true),
        ("text !matches ^all", false),
        ("text !matches ^x.*y$", true),
        ("outcome !matches ^success$", false),
        ("!(text !contains passed)", true),
        ("!text !contains passed", true),
        ("text !contains !contains", true),
        ("text != contains", true),
    ] {
        let parsed = Condition::parse(condition).unwrap();
        assert_eq!(parsed.holds(&context), holds, "{condition}");
        assert_eq!(parsed, Condition::parse(&parsed.to_string()).unwrap(), "{condition}");
    }
    assert!(Condition::parse("text !matches (").is_err());
    assert!(Condition::parse("text !containsx y").is_err());
    assert!(Condition::parse("text !has y").is_err());
}
