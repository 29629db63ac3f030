use std::convert::Infallible;
use std::sync::Arc;

use fabro_blob::{BlobError, BlobStore};
use fabro_engine::{read_blob, read_inner};
use fabro_types::BlobRef;
use serde_json::Value;

use crate::ReportError;

/// The values inside of one are read back up to so many bytes in all.
const INNER: u64 = 256 << 20;

/// Puts large values in the place of references: for the value of a key, and for those inside of
/// it. What was read is taken as it is. One of more than 16 MB is an error, and so are more than
/// 256 MB inside of one value.
pub fn read_back(
    key: &str,
    value: &mut Arc<Value>,
    blobs: &dyn BlobStore,
) -> Result<(), ReportError> {
    let lost = |source| ReportError::Key { key: key.to_owned(), source };
    if let Some(blob) = BlobRef::from_value(value) {
        *value = Arc::new(read_blob(blobs, &blob).map_err(lost)?);
    }
    if !(value.is_array() || value.is_object()) {
        return Ok(());
    }
    let mut left = INNER;
    read_inner(Arc::make_mut(value), &mut |blob| {
        let bytes = match blobs.len(blob) {
            Err(BlobError::Missing { .. }) => return Ok(None),
            bytes => bytes.map_err(|error| lost(error.into()))?,
        };
        let Some(rest) = left.checked_sub(bytes) else {
            return Err(ReportError::TooMuch { key: key.to_owned() });
        };
        left = rest;
        read_blob(blobs, blob).map(Some).map_err(lost)
    })
}

/// A value for people: references to at most `max` bytes in all are read back, also those inside of others. In the place
/// of a larger one there is its size and the command that prints it. One that cannot be read stays a reference.
pub fn read_back_small(value: &Value, max: u64, blobs: &dyn BlobStore) -> Value {
    let mut left = max;
    let mut read = |blob: &BlobRef| {
        let size = blobs.len(blob).ok()?;
        let Some(rest) = left.checked_sub(size) else {
            return Some(Value::from(format!(
                "({size} bytes, not shown here: fabro context --resolve prints them)"
            )));
        };
        left = rest;
        read_blob(blobs, blob).ok()
    };
    let whole = BlobRef::from_value(value).and_then(|blob| read(&blob));
    let mut value = whole.unwrap_or_else(|| value.clone());
    // A reading that fails leaves the reference, so there is no error.
    let Ok(()) = read_inner(&mut value, &mut |blob| Ok::<_, Infallible>(read(blob)));
    value
}

#[cfg(test)]
mod tests {
    use fabro_blob::MemoryBlobs;
    use serde_json::json;

    use super::*;

    #[test]
    fn references_inside_of_a_value_are_read_too() {
        let blobs = MemoryBlobs::default();
        let put = |value: Value| blobs.put(value.to_string().as_bytes()).unwrap().to_value();
        let read = |value: Value| {
            let mut value = Arc::new(value);
            read_back("k", &mut value, &blobs).map(|()| value.to_string())
        };
        let text = put(json!("HELLO"));
        let results = json!([{"id": "a", "response": text, "updates": {"command.output": text}}]);
        let shown = r#"[{"id":"a","response":"HELLO","updates":{"command.output":"HELLO"}}]"#;
        assert_eq!(read(results.clone()).unwrap(), shown);
        assert_eq!(read(put(results)).unwrap(), shown);
        assert_eq!(read(json!(["blob", 1])).unwrap(), r#"["blob",1]"#);
        let printed = put(text.clone());
        let name = text.to_string();
        assert_eq!(read(printed.clone()).unwrap(), name, "a text is taken as it is");
        assert_eq!(read(json!([printed])).unwrap(), format!("[{name}]"));
        let never = json!({"a": [BlobRef::of(b"never stored").to_value()]});
        assert_eq!(read(never.clone()).unwrap(), never.to_string());
    }

    #[test]
    fn small_values_are_read_back_for_people() {
        let blobs = MemoryBlobs::default();
        let put = |value: Value| blobs.put(value.to_string().as_bytes()).unwrap().to_value();
        let read = |value: Value| read_back_small(&value, 20, &blobs).to_string();
        assert_eq!(read(put(json!("hello"))), r#""hello""#);
        let inner = json!([put(json!("one")), {"two": put(json!("2222222"))}, put(json!("three"))]);
        let large = "(7 bytes, not shown here: fabro context --resolve prints them)";
        assert_eq!(read(inner), json!(["one", {"two": "2222222"}, large]).to_string());
        let never = BlobRef::of(b"never stored").to_value();
        assert_eq!(read(never.clone()), never.to_string());
    }

    #[test]
    fn a_lost_value_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = fabro_blob::DirBlobs::new(dir.path());
        let mut value = Arc::new(json!({"a": [BlobRef::of(b"gone").to_value()]}));
        let error = read_back("k", &mut value, &blobs).unwrap_err();
        assert!(error.is_store());
        assert!(error.to_string().starts_with("the value of `k` cannot be read back: "));
    }

    /// Its blobs say that they are as large as can be.
    struct Large;

    impl BlobStore for Large {
        fn get(&self, _: &BlobRef) -> Result<Vec<u8>, BlobError> {
            Ok(b"1".to_vec())
        }

        fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
            Ok(BlobRef::of(bytes))
        }

        fn len(&self, _: &BlobRef) -> Result<u64, BlobError> {
            Ok(fabro_engine::READ_LIMIT)
        }
    }

    #[test]
    fn what_a_value_holds_is_bounded() {
        let read = |count: usize| {
            let mut value = Arc::new(json!(vec![BlobRef::of(b"1").to_value(); count]));
            read_back("k", &mut value, &Large).map(|()| value)
        };
        assert_eq!(*read(16).unwrap(), json!(vec![1; 16]));
        insta::assert_snapshot!(read(17).unwrap_err(), @"the value of `k` cannot be read back: those inside of it are more than 256 MB together");
    }
}
