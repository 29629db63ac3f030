//! Values of the command line that are more than text.

use std::time::Duration;

use fabro_types::parse_json;
use serde_json::Value;

/// A `key=value` of the command line.
pub type KeyValue = (String, Value);

/// Reads `key=value`. The value is JSON when it reads as JSON, else text. A number that JSON would
/// write in another way (`1.10`, `1e3`) stays text, so nothing of it is lost.
pub fn key_value(text: &str) -> Result<KeyValue, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("write KEY=VALUE".to_owned());
    };
    if key.trim().is_empty() {
        return Err("there is no key before the `=`".to_owned());
    }
    let value = match parse_json(value) {
        Ok(Value::Number(number)) if number.to_string() != value => Value::from(value),
        Ok(json) => json,
        Err(_) => Value::from(value),
    };
    Ok((key.trim().to_owned(), value))
}

/// Reads an amount of US dollars: more than nothing.
pub fn amount(text: &str) -> Result<f64, String> {
    let number = text.strip_prefix('$').unwrap_or(text).parse::<f64>();
    match number {
        Ok(amount) if amount.is_finite() && amount > 0.0 => Ok(amount),
        _ => Err("write an amount in US dollars above 0, such as 2.50".to_owned()),
    }
}

/// Reads a time: a number with `ms`, `s`, `m`, `h` or `d`; without a unit it is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 10m or 2h".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit_ms) {
        Some(ms) if ms <= LONGEST_MS => Ok(Duration::from_millis(ms)),
        _ => Err("write a time of at most ten years".to_owned()),
    }
}

/// A longer time may exceed what the clock can count.
const LONGEST_MS: u64 = 10 * 365 * 86_400_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_json_where_nothing_is_lost() {
        let check = |text: &str, expect: Value| {
            assert_eq!(key_value(text), Ok(("k".into(), expect)), "{text}");
        };
        check("k=3", json!(3));
        check("k=true", json!(true));
        check("k=[1, 2]", json!([1, 2]));
        check("k=\"3\"", json!("3"));
        check("k={\"id\": 123456789012345678901}", json!({"id": "123456789012345678901"}));
        check("k=", json!(""));
        check("k=a=b", json!("a=b"));
        for text in ["1.10", "1e3", "007", "12345678901234567890123", "0x1f", "yes", "{"] {
            check(&format!("k={text}"), json!(text));
        }
        assert!(key_value("k").is_err());
        assert!(key_value(" =1").is_err());
    }

    #[test]
    fn amounts_are_above_nothing() {
        assert_eq!(amount("$2.50"), Ok(2.5));
        for text in ["0", "-1", "NaN", "inf", "much", ""] {
            assert!(amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        let check = |text: &str, ms| {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        };
        check("90", 90_000);
        check("90s", 90_000);
        check("250ms", 250);
        check("10m", 600_000);
        check("2h", 7_200_000);
        check("1d", 86_400_000);
        check("0s", 0);
        for text in ["", "m", "-1s", "1.5h", "10 m", "10min", "99999999999999999999s", "9999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
