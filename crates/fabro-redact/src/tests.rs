use proptest::prelude::*;
use serde_json::json;

use super::*;

const KEY: &str = "s3cr3t/valüe+\"quoted\"";

fn redactor() -> Redactor {
    Redactor::new([("KEY", KEY), ("PIN", "73190264"), ("SHORT", "abc1234"), ("", "nameless-one")])
}

/// What the whole becomes, and what it becomes in pieces of any size.
#[track_caller]
fn check(text: &str, expect: &str) {
    let redactor = redactor();
    assert_eq!(redactor.redact(text), expect);
    for size in [1, 2, 3, 7, 64] {
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend(stream.push(piece));
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8_lossy(&out), expect, "in pieces of {size}");
    }
}

#[track_caller]
fn check_clean(text: &str) {
    check(text, text);
    assert!(matches!(redactor().redact(text), Cow::Borrowed(_)));
}

#[test]
fn values_are_found_in_every_form() {
    check(&format!("a {KEY} b"), "a [redacted:KEY] b");
    check(&json!({ "a": KEY }).to_string(), r#"{"a":"[redacted:KEY]"}"#);
    let twice = json!({ "a": json!({ "b": KEY }).to_string() }).to_string();
    check(&twice, r#"{"a":"{\"b\":\"[redacted:KEY]\"}"}"#);
    check(r#""s3cr3t\/val\u00fce+\"quoted\"""#, r#""[redacted:KEY]""#);
    check("?q=s3cr3t%2Fval%C3%BCe%2B%22quoted%22&r", "?q=[redacted:KEY]&r");
    check("?q=s3cr3t%2fval%c3%bce%2b%22quoted%22&r", "?q=[redacted:KEY]&r");
    check("nameless-one", "[redacted]");
}

#[test]
fn values_with_a_space_are_found_in_queries() {
    let redactor = Redactor::new([("KEY", "se cr/et~*word")]);
    // As browsers, Python's `quote` and `quote_plus`, and JavaScript's `encodeURIComponent` write it.
    for text in [
        "se+cr%2Fet%7E*word",
        "se%20cr%2Fet~%2Aword",
        "se+cr%2Fet~%2Aword",
        "se+cr%2fet~%2aword",
        "se%20cr%2Fet~*word",
    ] {
        assert_eq!(redactor.redact(&format!("?q={text}&r")), "?q=[redacted:KEY]&r", "{text}");
    }
}

#[test]
fn values_are_found_in_hexadecimal_and_in_lines() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let hex = |bytes: &[u8]| {
        let digits =
            |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
        bytes.iter().flat_map(digits).flatten().collect::<String>()
    };
    let lower = hex(KEY.as_bytes());
    check(&format!("0x{lower}0a"), "0x[redacted:KEY]0a");
    check(&format!("ff{}", lower.to_uppercase()), "ff[redacted:KEY]");
    let long: String = (0..70).map(|n| char::from(b'!' + n)).collect();
    let redactor = Redactor::new([("LONG", &long)]);
    let base64 = STANDARD.encode(&long);
    for (encoded, width, at_end) in [(hex(long.as_bytes()), 60, ""), (base64, 76, "=")] {
        let lines = encoded.as_bytes().chunks(width).map(String::from_utf8_lossy);
        let lines = lines.collect::<Vec<_>>().join("\n");
        let redacted = redactor.redact(&lines).into_owned();
        let left = redacted.replace("[redacted:LONG]", "").replace(['\n', '='], "");
        // The last character of base64 may hold bits of what follows.
        assert!(left.len() <= at_end.len(), "{redacted}");
    }
}

#[test]
fn values_are_found_in_base64_wherever_they_stand() {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    for before in ["", "u", "us", "use", "user:"] {
        for after in ["", ":", "::", "and more"] {
            let plain = format!("{before}{KEY}{after}");
            for encoded in [STANDARD.encode(&plain), URL_SAFE.encode(&plain)] {
                let redacted = redactor().redact(&encoded).into_owned();
                let (head, tail) = redacted.split_once("[redacted:KEY]").unwrap();
                // What is left of the neighbours decodes to no more than them and a byte.
                assert!(head.len() <= before.len() * 4 / 3 + 2, "{redacted}");
                assert!(tail.len() <= (after.len() + 2) * 4 / 3 + 2, "{redacted}");
            }
        }
    }
}

#[test]
fn what_overlaps_or_touches_is_blanked_wholly() {
    let redactor =
        Redactor::new([("A", "aaaaabbbbb"), ("B", "bbbbbccccc"), ("C", "bbbbbccccc-and-more")]);
    for (text, expect) in [
        ("aaaaabbbbbccccc", "[redacted:A]"),
        ("aaaaabbbbbccccc-and-more!", "[redacted:A]!"),
        ("bbbbbccccc-and-more", "[redacted:C]"),
        ("bbbbbccccc-and-less", "[redacted:B]-and-less"),
        ("aaaaabbbbbbbbbbccccc", "[redacted:A][redacted:B]"),
    ] {
        assert_eq!(redactor.redact(text), expect);
    }
    let repeated = Redactor::new([("A", "aaaaaaaa")]);
    assert_eq!(repeated.redact(&"a".repeat(10_000)), "[redacted:A]");
}

#[test]
fn short_and_blank_values_are_left_aside() {
    check_clean("abc1234 is not looked for");
    let redactor = Redactor::new([("A", "  \n"), ("B", ""), ("C", " padded-value\n")]);
    assert_eq!(redactor.redact("x padded-value y"), "x [redacted:C] y");
    assert_eq!(format!("{redactor:?}"), "Redactor { values: 1, .. }");
}

#[test]
fn words_that_keep_nothing_secret_are_left_aside() {
    let redactor = Redactor::new([("A_TOKEN", "Disabled"), ("DB_PASSWORD", " postgres ")]);
    for text in ["disabled Disabled", "postgres://postgres@localhost/app"] {
        assert!(matches!(redactor.redact(text), Cow::Borrowed(_)), "{text}");
    }
    let redactor = Redactor::new([("DB_PASSWORD", "postgres-1")]);
    assert_eq!(redactor.redact("is postgres-1"), "is [redacted:DB_PASSWORD]");
}

#[test]
fn the_name_of_a_value_is_found_by_any_of_its_forms() {
    let redactor = redactor();
    for text in [KEY, &json!({ "a": KEY }).to_string(), &format!("Bearer abcdefghijklmnop{KEY}")] {
        assert_eq!(redactor.value_in(text), Some("KEY"), "{text}");
    }
    // A mark in a text does not hide what else is in it.
    assert_eq!(redactor.value_in("[redacted:PIN] 73190264"), Some("PIN"));
    for text in ["abc1234", "[redacted:KEY]", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"] {
        assert_eq!(redactor.value_in(text), None, "{text}");
    }
}

#[test]
fn names_are_fit_for_any_place() {
    let redactor = Redactor::new([("a \"b\"\n", "the-value-of-it"), ("x", "the-value-of-it")]);
    assert_eq!(redactor.redact("the-value-of-it"), "[redacted:a__b_]");
}

const JWT: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";

#[test]
fn json_web_tokens_are_secrets() {
    check(&format!("token={JWT}. Next"), "token=[redacted]. Next");
    check(&json!({"a": {"jwt": JWT}}).to_string(), r#"{"a":{"jwt":"[redacted]"}}"#);
    check(&format!("({JWT},{JWT})"), "([redacted],[redacted])");
    check(&format!("Cookie: s={JWT}; a=b"), "Cookie: s=[redacted]; a=b");
    let encrypted = "eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..lbUNkZCYLnqBuoSO.hZqYdbBpMhk3XHhbTQ.Xl6kGL8HvS1EvHLXmQ0EeA";
    check(&format!("{encrypted} x"), "[redacted] x");
    // Text in base64, alone and with dots, and a token that ends too early.
    let (unsigned, _) = JWT.rsplit_once('.').unwrap();
    for text in [
        unsigned,
        &format!("{unsigned}. And so on"),
        "eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0=",
        "eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0.map.js",
        "keyJumpTable.something.anotherthing",
        "4b825dc642cb6eb9a060e54bf8d69288fbee4904 550e8400-e29b-41d4-a716-446655440000",
    ] {
        check_clean(text);
    }
}

#[test]
fn passwords_in_urls_are_secrets() {
    check("postgres://app:hunter2@db:5432/app", "postgres://app:[redacted]@db:5432/app");
    check("redis://:p%40ss,w0rd@h", "redis://:[redacted]@h");
    check(r#"{"url":"https://u:pä:ss@h/x"}"#, r#"{"url":"https://u:[redacted]@h/x"}"#);
    check("amqp://a:b0@c amqp://d:e0@f", "amqp://a:[redacted]@c amqp://d:[redacted]@f");
    check("x://app:73190264@h", "x://app:[redacted:PIN]@h");
    for text in [
        "http://localhost:8080/a@b",
        "http://localhost:8080",
        "git://user@host:22/x",
        "ssh://git@github.com:a/b",
        "postgres://postgres:postgres@db/app",
        "https://${USER}:${PASSWORD}@host",
        "https://u:$TOKEN@host, https://u:***@host, https://u:[redacted]@host, https://u:<pw>@host",
        "http://[::1]:80/@",
        "see https://example.org: mail a@b.c",
    ] {
        check_clean(text);
    }
}

#[test]
fn many_beginnings_take_linear_time() {
    // A candidate for each of them would make 10^9 steps.
    for text in ["-eyJ", "eyJ.", "://a:", "://"] {
        let text = text.repeat(100_000);
        assert!(matches!(redactor().redact(&text), Cow::Borrowed(_)));
    }
}

#[test]
fn shapes_are_found() {
    let token = "abcdefghijklmnopqrstuvwxyz0123456789";
    for prefix in [
        "sk-",
        "sk-ant-api03-",
        "sk-proj-",
        "sk-or-v1-",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "npm_",
        "hf_",
        "xoxb-",
        "xoxp-",
        "AIza",
        "sk_live_",
        "fabro_key_0123",
    ] {
        check(&format!("export K={prefix}{token}; ls"), "export K=[redacted]; ls");
        check(&format!("{prefix}{token}"), "[redacted]");
        check(&format!("\"a\\n{prefix}{token}\""), "\"a\\n[redacted]\"");
        check(&format!("?k%3D{prefix}{token}&"), "?k%3D[redacted]&");
        check(&format!("\u{1b}[1;31m{prefix}{token}\u{1b}[0m"), "\u{1b}[1;31m[redacted]\u{1b}[0m");
    }
    check("id AKIAIOSFODNN7EXAMPLE, ok", "id [redacted], ok");
    check("id ASIAIOSFODNN7EXAMPLE", "id [redacted]");
    check("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x-y", "Authorization: Bearer [redacted]");
    check("authorization: bearer 0123456789abcdef0123\r\n", "authorization: bearer [redacted]\r\n");
    check("sk-some-words-in-a-row-sk-proj-0123456789abcdefghij", "[redacted]");
}

#[test]
fn ordinary_text_is_left_alone() {
    for text in [
        "The bearer of this letter is a friend. Bearer tokens are explained in the documentation.",
        "Bearer authentication-is-required-for-this, see sk-learn and task-0123456789abcdef0123456789",
        "disk-01HF7YAT00000000000000001A risk-free-investments-in-a-long-name sk-SK",
        "sk-folding-cube-animation-container sk-ant-colony-optimization-algorithm-explained",
        "0123456789abcdef0123456789abcdef01234567 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "01HF7YAT00000000000000001A 550e8400-e29b-41d4-a716-446655440000 blob://sha256/9f86d081",
        "npm_config_user_agent npm_lifecycle_event hf_hub_download ghs_is_a_prefix xoxb-your-token",
        "AKIA is a prefix, ASIAPACIFICHEADQUARTERSOFFICE, AKIAIOSFODNN7EXAMPLEx, XAKIAIOSFODNN7EXAMPLE",
        "Look for -----BEGIN PRIVATE KEY----- in it; the internationalization of src/a/b is done.",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
        "",
    ] {
        check_clean(text);
    }
}

#[test]
fn private_keys_are_blanked_whole_or_cut_off() {
    let line = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MaC2w3qX8jYd+uJa";
    let key = |kind: &str, sep: &str| {
        format!("-----BEGIN {kind}-----{sep}{line}{sep}{line}{sep}Ab=={sep}-----END {kind}-----")
    };
    for kind in ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
        check(&format!("a\n{}\nb", key(kind, "\n")), "a\n[redacted]\nb");
        check(&format!("  {}\r\nb", key(kind, "\r\n  ")), "  [redacted]\r\nb");
        check(&json!({ "k": key(kind, "\n") }).to_string(), r#"{"k":"[redacted]"}"#);
        let twice = json!({ "k": key(kind, "\n") }).to_string();
        check(&json!([twice]).to_string(), r#"["{\"k\":\"[redacted]\"}"]"#);
    }
    let encrypted = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n{line}\n\
         -----END RSA PRIVATE KEY-----."
    );
    check(&encrypted, "[redacted].");
    check(&format!("-----BEGIN PRIVATE KEY-----\n{line}\nMIIE… more"), "[redacted]… more");
    check("-----BEGIN PRIVATE KEY-----\nTUlJRQ==\n-----END PRIVATE KEY-----\n", "[redacted]\n");
    check(&format!("-----BEGIN EC PRIVATE KEY-----\n{line} and so on"), "[redacted] and so on");
}

#[test]
fn a_value_that_has_a_shape_keeps_its_name() {
    let redactor = Redactor::new([("OPENAI_API_KEY", "sk-proj-0123456789abcdefghij")]);
    assert_eq!(redactor.redact("sk-proj-0123456789abcdefghij."), "[redacted:OPENAI_API_KEY].");
    let bearer = "Bearer sk-proj-0123456789abcdefghij";
    assert_eq!(redactor.redact(bearer), "Bearer [redacted:OPENAI_API_KEY]");
}

#[test]
fn json_is_redacted_in_place() {
    let mut value = json!({
        KEY: 1,
        "a": [KEY, { "b": "nameless-one", "n": 73_190_264, "m": 1234 }, null, true],
        "73190264": "x",
        "[redacted:KEY]": "was there before",
    });
    redactor().redact_value(&mut value);
    let expect = json!({
        "[redacted:KEY]#2": 1,
        "a": ["[redacted:KEY]", { "b": "[redacted]", "n": "[redacted:PIN]", "m": 1234 }, null, true],
        "[redacted:PIN]": "x",
        "[redacted:KEY]": "was there before",
    });
    assert_eq!(value.to_string(), expect.to_string());
}

#[test]
fn json_is_consumed_tables_it_is_redacted() {
    let check = |text: &str, expect: &str| assert_eq!(redactor().redact_json(text), expect);
    check(
        r#" {"\u006eameless-one": [1.0, "in \u0037319\u00302\u0036\u0034"], "a": 73190264} "#,
        r#"{"[redacted]":[1.0,"in [redacted:PIN]"],"a":"[redacted:PIN]"}"#,
    );
    check("no JSON, nameless-one", "no JSON, [redacted]");
    let deep = format!("{}73190264{}", "[".repeat(100_000), "]".repeat(100_000));
    check(&deep, &deep.replace("73190264", "[redacted:PIN]"));
}

#[test]
fn many_secret_keys_take_linear_time() {
    let keys = (0..50_000).map(|number| (format!("ghp_{number:036}"), Value::Null));
    let mut value = Value::Object(keys.collect());
    redactor().redact_value(&mut value);
    assert!(value.get("[redacted]").is_some() && value.get("[redacted]#50000").is_some());
}

#[test]
fn depth_costs_no_stack() {
    let mut value = json!(KEY);
    for _ in 0..200_000 {
        value = Value::Array(vec![value]);
    }
    redactor().redact_value(&mut value);
    // Dropped from the outside in: the value itself would recurse.
    loop {
        match value {
            Value::Array(mut items) => value = items.pop().unwrap(),
            other => break assert_eq!(other, "[redacted:KEY]"),
        }
    }
}

#[test]
fn a_stream_holds_back_no_more_than_it_must() {
    let mut stream = redactor().stream();
    assert_eq!(stream.push(b"a line\n"), b"a line\n");
    assert_eq!(stream.push(b"pin 7319"), b"pin ");
    assert_eq!(stream.push(b"026"), b"");
    assert_eq!(stream.push(b"!"), b"7319026!");
    assert_eq!(stream.push(b" Bearer abcdefghijklmnop"), b" Bearer ");
    assert_eq!(stream.push(b"0123"), b"[redacted]");
    assert_eq!(stream.push(&vec![b'x'; 100_000]), b"");
    assert_eq!(stream.push(b"y\xff !"), b"\xff !");
    assert_eq!(stream.finish(), b"");
    assert_eq!(format!("{stream:?}"), "Stream { buffered: 0, .. }");
}

#[test]
fn hostile_texts_take_linear_time() {
    for unit in
        ["sk-", "sk-a", "Bearer ", "-----BEGIN PRIVATE KEY-----", "xoxb-", "-----", "7319026"]
    {
        let text = unit.repeat(100_000 / unit.len());
        let _ = redactor().redact(&text);
    }
}

proptest! {
    #[test]
    fn pieces_make_the_whole(
        parts in prop::collection::vec(prop::sample::select(vec![
            "aaaaabbbbb", "bbbbbccccc", "aaaaa", "ccccc", " ", "\n", "\\n", "sk-", "Bearer ",
            "0123456789", "abcdefghijklmnop", "AKIA", "AKIAIOSFODNN7EXAMPLE", "-", "x",
            "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "MIIEpAIBAAKCAQEA0Z3VS5J",
            "ü", ".", "YWFhYWFiYmJiYg", "ghp_", "=",
        ]), 0..24),
        cuts in prop::collection::vec(0_usize..40, 0..24),
    ) {
        let text = parts.concat();
        let redactor = Redactor::new([("A", "aaaaabbbbb"), ("B", "bbbbbccccc")]);
        let whole = redactor.redact(&text);
        prop_assert!(!whole.contains("aaaaabbbbb") && !whole.contains("bbbbbccccc"));
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            out.extend(stream.push(piece));
            rest = after;
        }
        out.extend(stream.push(rest));
        out.extend(stream.finish());
        prop_assert_eq!(String::from_utf8_lossy(&out), whole);
    }

    #[test]
    fn no_value_survives(value in "\\PC{8,20}", before in "\\PC{0,9}", after in "\\PC{0,9}") {
        let value = value.trim();
        prop_assume!(value.chars().count() >= SHORTEST_VALUE && !"[redacted]".contains(value));
        let redactor = Redactor::new([("", value)]);
        let text = format!("{before}{value}{after}");
        prop_assert!(!redactor.redact(&text).contains(value));
        let json = json!([text, [json!(text).to_string()]]).to_string();
        let redacted: Value = serde_json::from_str(&redactor.redact(&json)).unwrap();
        prop_assert!(!redacted[0].as_str().unwrap().contains(value));
    }

    #[test]
    fn any_bytes_go_through(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let redactor = redactor();
        let whole = redactor.redact_bytes(&bytes).into_owned();
        let mut stream = redactor.stream();
        let mut out = stream.push(&bytes);
        out.extend(stream.finish());
        prop_assert_eq!(out, whole);
    }
}

#[test]
fn base64_in_lines_cannot_be_decoded() {
    use base64::Engine as _;

    let secret = "pl4nted-Sec/ret+value=9&x-QwErTyUiOp1234567890";
    let redactor = Redactor::new([("KEY", secret)]);
    for before in 0..76 {
        let whole = format!("{}{secret}{}", "a".repeat(before), "b".repeat(60));
        let encoded = base64::engine::general_purpose::STANDARD.encode(whole);
        for end in ["\n", "\r\n", "\\n"] {
            let lines: Vec<_> =
                encoded.as_bytes().chunks(76).map(|line| str::from_utf8(line).unwrap()).collect();
            let text = lines.join(end);
            let redacted = redactor.redact(&text);
            assert!(redacted.contains("[redacted:KEY]"), "{redacted}");
            // What is left of it, in characters of base64.
            let kept = redacted.replace("[redacted:KEY]", "").replace(end, "").len();
            let own = secret.len() * 8 / 6;
            let left = kept + own - encoded.len();
            assert!(left <= 40, "{left} of {own}: {redacted}");
        }
    }
}
