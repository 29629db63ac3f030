use std::cmp::Ordering;

use serde::{Deserialize, Serialize, Serializer};

/// The weight of an edge: any finite number, 0 by default. Written as a whole number where it is
/// one.
///
/// ```
/// use fabro_types::Weight;
///
/// assert!(Weight::new(2.0) > Weight::new(0.5));
/// assert_eq!(Weight::new(2.0).to_string(), "2");
/// assert_eq!(Weight::new(f64::NAN), Weight::default());
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Weight(f64);

impl Weight {
    /// A weight; what is no finite number counts as 0.
    pub fn new(number: f64) -> Self {
        // Adding 0 turns -0 into 0, so that equal weights are written alike.
        Self(if number.is_finite() { number + 0.0 } else { 0.0 })
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// True for the weight of an edge that names none.
    pub fn is_default(&self) -> bool {
        self.0 == 0.0
    }
}

impl PartialEq for Weight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Weight {}

impl PartialOrd for Weight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Weight {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl std::fmt::Display for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Whole numbers up to 2^53 are exact in both forms.
        if self.0.fract() == 0.0 && self.0.abs() < 9e15 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_whole() {
        for (number, text) in [(2.0, "2"), (-1.0, "-1"), (0.5, "0.5"), (1e300, "1e+300")] {
            let weight = Weight::new(number);
            assert_eq!(serde_json::to_string(&weight).unwrap(), text);
            assert_eq!(serde_json::from_str::<Weight>(text).unwrap(), weight);
        }
    }
}
