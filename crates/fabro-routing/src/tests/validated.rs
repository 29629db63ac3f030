use std::fmt::Write as _;
use std::sync::LazyLock;

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Checked, Expected, Schema, check, check_redacted, extract, feedback};

const AUDIT: &str = r#"{"type": "object", "additionalProperties": false, "required": ["verdict", "score"],
    "properties": {"verdict": {"enum": ["pass", "fail"]}, "score": {"type": "integer", "maximum": 10},
    "items": {"type": "array", "items": {"type": "object", "required": ["file"]}}}}"#;

fn schema(json: &str) -> Schema {
    Schema::compile(json).unwrap()
}

/// The value, or what is wrong with it.
fn told(checked: &Checked) -> String {
    match checked {
        Checked::Valid(value) => format!("valid {value}"),
        Checked::Missing => "missing".to_owned(),
        Checked::Invalid { problems } => {
            let mut told = String::new();
            for problem in problems {
                let _ = writeln!(told, "{} {}", problem.pointer, problem.message);
            }
            told
        }
    }
}

static AUDITED: LazyLock<Schema> = LazyLock::new(|| schema(AUDIT));

fn by_schema(text: &str, json: &str) -> String {
    told(&check(text, Expected::Schema(&schema(json))))
}

fn audit(text: &str) -> String {
    told(&check(text, Expected::Schema(&AUDITED)))
}

fn routing(text: &str) -> String {
    told(&check(text, Expected::Routing))
}

#[test]
fn routing_fields_have_their_types() {
    assert_snapshot!(routing(r#"Done. {"outcome":"needs_dod","suggested_next_ids":["a"],"context_updates":{"a":1},"note":7}"#), @r#"valid {"outcome":"needs_dod","suggested_next_ids":["a"],"context_updates":{"a":1},"note":7}"#);
    assert_snapshot!(routing(r#"{"outcome":1,"failure_reason":null,"preferred_next_label":["a"],"suggested_next_ids":["b",2,null],"context_updates":[1]}"#), @r"
    /outcome it must be a string, not a number
    /failure_reason it must be a string, not null
    /preferred_next_label it must be a string, not an array
    /suggested_next_ids/1 it must be a string, not a number
    /suggested_next_ids/2 it must be a string, not null
    /context_updates it must be an object, not an array
    ");
    assert_snapshot!(routing(r#"{"suggested_next_ids":"b"}"#), @"/suggested_next_ids it must be an array of strings, not a string");
}

#[test]
fn the_last_word_on_routing_counts() {
    assert_snapshot!(routing(r#"{"outcome":1} no: {"outcome":"failed"} {"other":{}}"#), @r#"valid {"outcome":"failed"}"#);
    assert_snapshot!(routing(r#"{"outcome":"failed"} no: {"outcome":succeeded}"#), @" it does not parse: expected value at line 1 column 12");
    assert_snapshot!(routing(r#"{"outcome":"failed"} no: {"outcome":"succee"#), @" it breaks off before its closing brace");
    assert_snapshot!(routing(r#"{"outcome":succeeded} no: {"outcome":"failed"}"#), @r#"valid {"outcome":"failed"}"#);
    assert_snapshot!(routing(r#"broke off: {"outcome": "succ... Again: {"outcome":"failed"}"#), @r#"valid {"outcome":"failed"}"#);
}

#[test]
fn broken_routing_is_not_missing() {
    assert_snapshot!(routing(r#"{"outcome":"failed","outcome":"succeeded",}"#), @" it does not parse: trailing comma at line 1 column 43");
    assert_snapshot!(routing(r#"{"coverage":NaN,"outcome":"failed"}"#), @" it does not parse: expected value at line 1 column 13");
    assert_snapshot!(routing(r#"{"failure_reason":"a \x b"}"#), @" it does not parse: invalid escape at line 1 column 23");
    assert_snapshot!(routing("{ // why\n \"outcome\": \"failed\" }"), @" it does not parse: key must be a string at line 1 column 3");
    assert_snapshot!(routing(r#"{"context_updates":{"a":{"b":1}"#), @" it breaks off before its closing brace");
    let deep = format!("{{\"outcome\":{}1{}", "[".repeat(200), "]".repeat(200));
    assert_snapshot!(routing(&format!("{deep}}}")), @" it does not parse: it is nested deeper than 127 levels at line 1 column 138");
}

#[test]
fn what_is_no_routing_is_missing() {
    for text in [
        "",
        "I would say outcome: failed.",
        r#"The field "outcome": "failed" it is"#,
        r#"{"other":1}"#,
        r#"{"result":{"outcome":"failed"}}"#,
        r#"{"result":{"outcome":"failed"},}"#,
        r#"{"result":{"outcome":"fai"#,
        "{'other': 'failed'}",
        r#"fn f() { return {"outcome":"failed"} }"#,
        r#"["outcome"]"#,
    ] {
        assert_eq!(check(text, Expected::Routing), Checked::Missing, "{text}");
    }
}

#[test]
fn an_answer_matches_the_schema() {
    assert_snapshot!(audit(r#"{"verdict":"pass","score":9}"#), @r#"valid {"verdict":"pass","score":9}"#);
    assert_snapshot!(audit("Draft {\"verdict\":\"fail\",\"score\":1}\n```json\n{\"verdict\": \"pass\",\n \"score\": 9}\n```\nDone."), @r#"valid {"verdict":"pass","score":9}"#);
    assert_snapshot!(audit(r#"{"score":1,"score":2,"verdict":"pass {not} \"}"}"#), @r#"/verdict "pass {not} \"}" is none of "pass", "fail""#);
    assert_snapshot!(audit(r#"{"verdict":"ok","score":1.5,"items":[{"file":1},{}],"extra":null}"#), @r#"
    /verdict "ok" is none of "pass", "fail"
    /score it must be of type integer, not a number
    /items/1 "file" is missing
     Additional properties are not allowed ('extra' was unexpected)
    "#);
    assert_snapshot!(audit("no JSON"), @"missing");
}

#[test]
fn the_last_object_that_parses_counts_unless_a_broken_one_was_meant() {
    let good = r#"{"verdict":"pass","score":9}"#;
    assert_snapshot!(audit(&format!(r#"{good} see "use {{braces" and {{"x"}}"#)), @r#"valid {"verdict":"pass","score":9}"#);
    assert_snapshot!(audit(&format!(r#"{good} {{"score": oops}}"#)), @" it does not parse: expected value at line 1 column 11");
    assert_snapshot!(audit(&format!(r#"{good} and again {{"verdict":"pa"#)), @" it breaks off before its closing brace");
    assert_snapshot!(audit(r#"{"grade": oops}"#), @" it does not parse: expected value at line 1 column 11");
    assert_snapshot!(audit(r#"{"grade": 1"#), @"missing");
}

#[test]
fn other_types_than_objects() {
    let list = r#"{"type":"array","items":{"type":"object","required":["file"]}}"#;
    assert_snapshot!(by_schema(r#" [{"file":"a"}, {"file":"b"}] "#, list), @r#"valid [{"file":"a"},{"file":"b"}]"#);
    assert_snapshot!(by_schema("Here:\n```json\n[]\n```\nand\n```\n[{\"file\":\"b\"}]\n```", list), @r#"valid [{"file":"b"}]"#);
    assert_snapshot!(by_schema("[{}]", list), @r#"/0 "file" is missing"#);
    assert_snapshot!(by_schema(r#"The file is {"file":"a"}"#, list), @" it must be of type array, not an object");
    assert_snapshot!(by_schema("7", list), @" it must be of type array, not a number");
    assert_snapshot!(by_schema("\"yes\"", r#"{"type":["string","object"]}"#), @r#"valid "yes""#);
    assert_snapshot!(by_schema("{\"a\":1}", r#"{"type":["string","object"]}"#), @r#"valid {"a":1}"#);
    assert_snapshot!(by_schema("[1]", "{}"), @"missing");
}

#[test]
fn alternatives_are_explained() {
    let shape = r#"{"oneOf":[
        {"type":"object","properties":{"kind":{"const":"circle"},"radius":{"type":"number"}},"required":["kind","radius"]},
        {"type":"object","properties":{"kind":{"const":"square"},"side":{"type":"number"}},"required":["kind","side"]},
        {"type":"string"}]}"#;
    assert_snapshot!(by_schema(r#"{"kind":"square","side":"long"}"#, shape), @"/side it must be of type number, not a string");
    let optional =
        r#"{"properties":{"a":{"anyOf":[{"type":"null"},{"type":"string","minLength":3}]}}}"#;
    assert_snapshot!(by_schema(r#"{"a":"x"}"#, optional), @r#"/a "x" is shorter than 3 characters"#);
    assert_snapshot!(by_schema(r#"{"a":7}"#, optional), @"/a it fits none of the alternatives: (1) it must be of type null, not a number, (2) it must be of type string, not a number");
    assert_snapshot!(by_schema(r#"{"a":7}"#, r#"{"oneOf":[{"required":["a"]},{"type":"object"}]}"#), @" it fits more than one of the alternatives of `oneOf`, and must fit exactly one");
}

#[test]
fn messages_are_short_whatever_the_answer() {
    let long = json!({"verdict": "x".repeat(100_000), "score": vec![1; 10_000]});
    let told = audit(&long.to_string());
    assert!(told.len() < 1_000, "{}", told.len());
    let many: Vec<Value> = (0..5_000).map(|_| json!({})).collect();
    let expected = schema(AUDIT);
    let checked = check(
        &json!({"verdict": "pass", "score": 1, "items": many}).to_string(),
        Expected::Schema(&expected),
    );
    let Checked::Invalid { problems } = &checked else { panic!() };
    assert_eq!(problems.len(), 11);
    assert!(
        feedback(&checked, Expected::Schema(&expected))
            .ends_with("Answer with the corrected JSON only.")
    );
}

#[test]
fn feedback_says_what_is_wrong_and_what_is_wanted() {
    let say = |text: &str, json: &str| {
        let schema = schema(json);
        let expected = Expected::Schema(&schema);
        feedback(&check(text, expected), expected)
    };
    assert_snapshot!(say(r#"{"a":1,"b":{"c":"x"}}"#, r#"{"properties":{"a":{"type":"string"},"b":{"properties":{"c":{"minLength":2}}}},"required":["d"]}"#), @r#"
    The JSON in your answer is not valid:
    - the top: "d" is missing
    - /a: it must be of type string, not a number
    - /b/c: "x" is shorter than 2 characters
    It must match this JSON Schema:
    {"properties":{"a":{"type":"string"},"b":{"properties":{"c":{"minLength":2}}}},"required":["d"]}
    Answer with the corrected JSON only.
    "#);
    assert_snapshot!(say("no", r#"{"type":"object"}"#), @r#"
    Your answer has no JSON object.
    It must match this JSON Schema:
    {"type":"object"}
    Answer with the corrected JSON only.
    "#);
    assert_snapshot!(say("{}", "{}"), @"");
    assert_snapshot!(feedback(&check(r#"{"outcome":1}"#, Expected::Routing), Expected::Routing), @r"
    The JSON in your answer is not valid:
    - /outcome: it must be a string, not a number
    It must be a JSON object with at least one of these fields: outcome (a string: succeeded, failed, partially_succeeded or skipped), failure_reason (a string), preferred_next_label (a string), suggested_next_ids (an array of strings), context_updates (an object).
    Answer with the corrected JSON only.
    ");
    assert_snapshot!(feedback(&Checked::Missing, Expected::Routing), @r"
    Your answer has no JSON object with a routing field.
    It must be a JSON object with at least one of these fields: outcome (a string: succeeded, failed, partially_succeeded or skipped), failure_reason (a string), preferred_next_label (a string), suggested_next_ids (an array of strings), context_updates (an object).
    Answer with the corrected JSON only.
    ");
    let large = json!({"type": "object", "description": "é".repeat(5_000), "required": ["a"]});
    assert!(say("{}", &large.to_string()).chars().count() < 2_300);
}

#[test]
fn schemas_that_are_none_are_refused() {
    let refused = |json: &str| Schema::compile(json).unwrap_err().to_string();
    assert_snapshot!(refused("{"), @"the schema is not JSON: EOF while parsing an object");
    assert_snapshot!(refused("[1]"), @"the schema is not a JSON object");
    assert_snapshot!(refused(r#"{"properties":{"a/b":{"type":"strng"}}}"#), @r#"the schema is wrong at /properties/a~1b/type: "strng" is none of "array", "boolean", "integer", "null", "number", "object", "string""#);
    assert_snapshot!(refused(r#"{"required":"a"}"#), @"the schema is wrong at /required: it must be of type array, not a string");
    assert_snapshot!(refused(r#"{"properties":{"a":{"pattern":"(["}}}"#), @r#"the schema is wrong at /properties/a/pattern: "([" is no regular expression, or one that grows too large"#);
    assert_snapshot!(refused(r#"{"pattern":"(\\w{500}){500}"}"#), @r#"the schema is wrong at /pattern: "(\\w{500}){500}" is no regular expression, or one that grows too large"#);
    assert_snapshot!(refused(r#"{"properties":{"a":{"$ref":"other.json"}}}"#), @"the schema refers to `other.json` at /properties/a/$ref, but nothing outside of the schema itself is read: copy it into `$defs`");
    assert_snapshot!(refused(r#"{"prefixItems":[{"$ref":"file:///etc/passwd"}]}"#), @"the schema refers to `file:///etc/passwd` at /prefixItems/0/$ref, but nothing outside of the schema itself is read: copy it into `$defs`");
    assert_snapshot!(refused(r#"{"allOf":[{"$ref":"https://example.com/s.json#/a"}]}"#), @"the schema refers to `https://example.com/s.json` at /allOf/0/$ref, but nothing outside of the schema itself is read: copy it into `$defs`");
    assert_snapshot!(refused(r##"{"items":{"$ref":"#/$defs/no"}}"##), @"the schema refers to `#/$defs/no` at /items/$ref, which is not there");
    assert_snapshot!(refused(r##"{"items":{"$ref":"#no"}}"##), @"the schema refers to `#no` at /items/$ref, which is not there");
    assert_snapshot!(refused(r#"{"$schema":"http://example.com/mine"}"#), @"the schema is wrong at /$schema: `http://example.com/mine` is not a draft of JSON Schema: write https://json-schema.org/draft/2020-12/schema, or leave it out");
    assert_snapshot!(refused(r#"{"$ref":"ht tp://%%"}"#), @"the schema is wrong at the top: Invalid URI reference 'ht tp://%%': unexpected character at index 2");
    assert_snapshot!(refused(&format!("{}1{}", "{\"not\":".repeat(100_000), "}".repeat(100_000))), @"the schema is not JSON: it is nested deeper than 127 levels");
}

#[test]
fn schemas_that_are_too_large_are_not_compiled() {
    let of = |count: usize| format!(r#"{{"anyOf":[{}]}}"#, vec!["{}"; count].join(","));
    let refused = Schema::compile(&of(20_000)).unwrap_err();
    assert_snapshot!(refused, @"the schema cannot be used: it has more than 20,000 objects");
    assert!(Schema::compile(&of(2_000)).is_ok());
    // Each level has the one below it twice.
    let mut doubled = r#"{"type":"string"}"#.to_owned();
    for _ in 0..18 {
        doubled = format!(r#"{{"allOf":[{doubled},{doubled}]}}"#);
    }
    assert!(Schema::compile(&doubled).is_err());
}

#[test]
fn schemas_may_lead_back_to_themselves() {
    for json in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
        r##"{"properties":{"a":{"$ref":"#"}}}"##,
        r#"{"$id":"https://e.com/r","$defs":{"a":{"$id":"a.json"}},"$ref":"a.json"}"#,
        "\u{feff}{}",
    ] {
        let deep = format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120));
        assert!(by_schema(&deep, json).starts_with("valid"), "{json}");
    }
}

#[test]
fn hostile_answers_end() {
    let size = 1 << 18;
    let audit = &*AUDITED;
    for piece in [
        "{",
        "}",
        "\"",
        "\\",
        "{\"outcome\":",
        "{\"outcome\"",
        "{\"score\":",
        "{}",
        "{\"score\":[{},",
        "```",
        "```\n[\n",
        "[",
        "{\"",
        "\"outcome\":",
        "{\"outcome\":1}",
        "{ \"outcome\":}",
        "\"outcome\"                     ",
    ] {
        let text = piece.repeat(size / piece.len());
        let _ = check(&text, Expected::Routing);
        let _ = check(&text, Expected::Schema(audit));
    }
    let deep = format!("{}1{}", "{\"outcome\":".repeat(100_000), "}".repeat(100_000));
    assert!(routing(&deep).contains("nested deeper than 127 levels"));
    let prose =
        format!("{} {{\"outcome\":\"failed\"}}", "It is \"so\" {here}.\n".repeat(size / 20));
    assert_eq!(routing(&prose), r#"valid {"outcome":"failed"}"#);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The strict reading and the lenient one look at the same object.
    #[test]
    fn valid_routing_is_what_is_extracted(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "{", "}", "\"", ":", "\\", ",", "a", "[", "]", " ", "\"outcome\"", "\"outcome\":",
                "{\"outcome\":\"failed\"}", "\n", "é", "```", "NaN", "{\"outcome\":1}",
            ]),
            0..30,
        ),
    ) {
        let text = pieces.concat();
        let extracted = extract(&text);
        match check(&text, Expected::Routing) {
            Checked::Valid(value) => {
                let span = extracted.unwrap().span;
                prop_assert_eq!(value, serde_json::from_str::<Value>(&text[span]).unwrap());
            }
            Checked::Missing => prop_assert_eq!(extracted, None),
            Checked::Invalid { problems } => prop_assert!(!problems.is_empty()),
        }
    }

    #[test]
    fn every_well_formed_answer_is_valid_after_any_prose(prose in "[^{}]{0,60}", score in 0..=10_i64) {
        let text = format!("{prose} {{\"verdict\":\"pass\",\"score\":{score}}}");
        prop_assert!(audit(&text).starts_with("valid"));
    }

    #[test]
    fn anything_is_checked_without_panic(text in any::<String>(), json in any::<String>()) {
        let checked = check(&text, Expected::Routing);
        let _ = feedback(&checked, Expected::Routing);
        let _ = Schema::compile(&json);
    }
}

/// An answer that nests so deep: `{"a": {"a": {}}}`.
fn nested(depth: usize) -> String {
    format!("{}{{}}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth))
}

#[test]
fn alternatives_that_lead_back_to_themselves_have_a_bound() {
    let any = r##"{"type":"object","anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}"##;
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let json = any.replace("anyOf", keyword);
        for depth in [20, 60, 100] {
            let said = by_schema(&nested(depth), &json);
            assert!(said.starts_with(" it is nested too deep for this schema"), "{said}");
        }
    }
    // At a small depth the errors are reported as usual; at a larger one the answer is refused without them.
    assert_snapshot!(by_schema(&nested(2), any), @r#" it fits none of the alternatives: (1) "x" is missing, (2) "y" is missing"#);
    assert_snapshot!(by_schema(&nested(16), any), @" it does not match the schema");
}

#[test]
fn references_that_multiply_have_a_bound() {
    let mut defs: Vec<String> = (0..40)
        .map(|at| {
            format!(
                r##""d{at}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}}"##,
                at + 1,
                at + 1
            )
        })
        .collect();
    defs.push(r#""d40":{"type":"object"}"#.to_owned());
    let json =
        format!(r##"{{"type":"object","$ref":"#/$defs/d0","$defs":{{{}}}}}"##, defs.join(","));
    let said = by_schema("{}", &json);
    assert!(said.starts_with(" it is nested too deep for this schema"), "{said}");
    let around = r##"{"type":"object","anyOf":[{"$ref":"#/$defs/b"},{"required":["x"]},{"$ref":"#"}],"$defs":{"b":{"not":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}}}"##;
    let _ = by_schema("{}", around);
}

#[test]
fn recursive_schemas_of_every_day_are_no_problem() {
    let tree = r##"{"type":"object","$ref":"#/$defs/node","$defs":{"node":{"type":"object","required":["kind"],"properties":{"a":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}}}}}"##;
    let deep = format!("{}null{}", r#"{"kind":"x","a":"#.repeat(100), "}".repeat(100));
    assert!(by_schema(&deep, tree).starts_with("valid"));
    assert_snapshot!(by_schema(&deep.replacen(r#""kind":"x","#, "", 1), tree), @r#" "kind" is missing"#);
    let kinds = ["add", "sub", "mul", "div"].map(|kind| {
        format!(r##"{{"required":["op"],"properties":{{"a":{{"$ref":"#"}},"op":{{"const":"{kind}"}}}}}}"##)
    });
    let union = format!(r#"{{"type":"object","oneOf":[{}]}}"#, kinds.join(","));
    let deep = format!(r#"{}{{"op":"sub"}}{}"#, r#"{"op":"add","a":"#.repeat(100), "}".repeat(100));
    assert!(by_schema(&deep, &union).starts_with("valid"));
    let wrong = deep.replace("sub", "mod");
    assert_snapshot!(by_schema(&wrong, &union), @" it does not match the schema");
    let items =
        format!(r#"{{"all":[{}]}}"#, vec![r#"{"id":1,"tags":["a","b"]}"#; 20_000].join(","));
    let list = r##"{"type":"object","properties":{"all":{"items":{"$ref":"#/$defs/item"}}},"$defs":{"item":{"required":["id"],"properties":{"tags":{"items":{"type":"string"}}}}}}"##;
    assert!(by_schema(&items, list).starts_with("valid"));
    let wrong = items.replace(r#""b""#, "7");
    assert!(by_schema(&wrong, list).starts_with("/all/0/tags/1 it must be of type string"));
}

#[test]
fn problems_are_redacted_before_they_are_shortened() {
    let secret = "correct/horse~battery";
    let schema = Schema::compile(
        r#"{"additionalProperties": {"additionalProperties": false}, "properties": {"n": {"pattern": "^b"}}}"#,
    );
    let redact = |text: &str| text.replace(secret, "[redacted]");
    let schema = schema.unwrap();
    let problem = |json: serde_json::Value| {
        let checked = check_redacted(&json.to_string(), Expected::Schema(&schema), redact);
        checked.problem()
    };
    assert_eq!(problem(json!({"n": secret})), r#"/n: "[redacted]" does not match "^b""#);
    let place = problem(json!({secret: {"x": 1}}));
    assert!(place.starts_with("/[redacted]: "), "{place}");
    for length in 200..300 {
        let name = format!("{}{secret}", "x".repeat(length));
        let shown = problem(json!({"a": {name: 1}}));
        assert!(!shown.contains("xcorr"), "{shown}");
    }
}
