//! JSON whose integers may not fit 64 bits.

use std::borrow::Cow;

use serde_json::Value;

/// Parses JSON that a model, a command or a person has written. An integer that does not fit 64
/// bits becomes a string with all of its digits: as a number it would be rounded.
///
/// ```
/// let value = fabro_types::parse_json("[7, 123456789012345678901]").unwrap();
/// assert_eq!(value, serde_json::json!([7, "123456789012345678901"]));
/// ```
///
/// # Errors
///
/// The text is not JSON; the error has the position in the text.
pub fn parse_json(json: &str) -> serde_json::Result<Value> {
    match with_large_integers_quoted(json) {
        Cow::Borrowed(json) => serde_json::from_str(json),
        // An error has its place in the text as it was written.
        Cow::Owned(quoted) => serde_json::from_str(&quoted).or_else(|_| serde_json::from_str(json)),
    }
}

fn with_large_integers_quoted(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut quoted = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at + 1),
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = &json[at..at + length];
                if is_large_integer(number) {
                    quoted.push_str(&json[copied..at]);
                    quoted.push('"');
                    quoted.push_str(number);
                    quoted.push('"');
                    copied = at + length;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    quoted.push_str(&json[copied..]);
    Cow::Owned(quoted)
}

/// The place behind the closing quote.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn is_large_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() >= 19
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && number.parse::<u64>().is_err()
        && number.parse::<i64>().is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_digit_of_an_integer_is_lost() {
        let check = |text: &str, expect: Value| assert_eq!(parse_json(text).unwrap(), expect);
        check("18446744073709551615", json!(u64::MAX));
        check("-9223372036854775808", json!(i64::MIN));
        check("18446744073709551616", json!("18446744073709551616"));
        check("-9223372036854775809", json!("-9223372036854775809"));
        check(
            r#"{"a": [100000000000000000001,7], "100000000000000000001": "\"100000000000000000001\\"}"#,
            json!({"a": ["100000000000000000001", 7], "100000000000000000001": "\"100000000000000000001\\"}),
        );
        check("100000000000000000001.5", json!(100_000_000_000_000_000_001.5));
        check("1e30", json!(1e30));
        for broken in ["{\"a\": 100000000000000000001", "\"\\", "\"a", "000000000000000000000", "-"]
        {
            let error = parse_json(broken).unwrap_err().to_string();
            assert_eq!(error, serde_json::from_str::<Value>(broken).unwrap_err().to_string());
        }
    }
}
