//! What it costs at most to validate a value, counted before it is validated: a schema that refers to
//! itself in several alternatives takes time, and memory for the errors, that grow exponentially with
//! the nesting of the value.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// How many pairs of a schema and a value are looked at to decide whether a value is valid.
const MAX_STEPS: u64 = 2_000_000;

/// The same to say what is wrong with it; each alternative that failed counts as much as the value it
/// failed on, which its error repeats.
const MAX_ERROR_STEPS: u64 = 300_000;

/// How many pairs are counted: as many as a large answer and a large schema have.
const MAX_COUNTED: usize = 400_000;

/// How deep schemas and values are followed together.
const MAX_DEPTH: usize = 700;

/// How many schemas times how many values are validated without counting, where no `$ref` is.
const SMALL: usize = 200_000;

/// What of a validation is within the bounds of time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affordable {
    /// Whether the value is valid, and all that is wrong with it.
    Errors,
    /// Only whether the value is valid.
    Validity,
    /// Nothing: [`TOO_COSTLY`] says so.
    Nothing,
}

/// Why a value is not validated.
pub const TOO_COSTLY: &str = "it is nested too deep for this schema, whose alternatives lead back to themselves: every level multiplies the work; let each alternative require a property with a constant of its own, or nest less";

/// How many objects a schema may have. Compiled, each takes some 8 KB.
const MAX_OBJECTS: usize = 20_000;

/// Why a schema is not compiled.
pub const TOO_LARGE: &str = "it has more than 20,000 objects";

/// Whether a schema takes too much time and memory to compile: [`TOO_LARGE`] says so.
pub fn is_too_large(schema: &Value) -> bool {
    let mut open = vec![schema];
    let mut objects = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                objects += 1;
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
        if objects > MAX_OBJECTS {
            return true;
        }
    }
    false
}

/// Keywords with one schema for the value itself.
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with a list of schemas for the value itself.
const ALTERNATIVES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with one schema for what is in an array.
const OF_ITEMS: [&str; 4] = ["items", "additionalItems", "contains", "unevaluatedItems"];
/// Keywords with one schema for what is in an object.
const OF_FIELDS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords that lead to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The bounds of validations by one schema. What the schema refers to is found once.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The JSON pointers of the schemas with an `$id`, without what follows `#`.
    ids: HashMap<String, String>,
    anchors: HashMap<String, String>,
    /// How many values the schema has.
    size: usize,
    any: bool,
}

impl Bounds {
    /// For a schema that is given to [`affordable`](Self::affordable) too.
    pub fn of(schema: &Value) -> Self {
        let mut bounds = Self::default();
        bounds.add(schema, &mut String::new());
        bounds
    }

    /// The recursion ends at the levels that the JSON parser allows.
    fn add(&mut self, value: &Value, pointer: &mut String) {
        self.size += 1;
        let length = pointer.len();
        let fields = value.as_object().into_iter().flatten();
        for (key, inner) in fields {
            if let Some(text) = inner.as_str() {
                self.any |= REFERENCES.contains(&key.as_str());
                match key.as_str() {
                    "$id" | "id" => {
                        self.ids.insert(text.trim_end_matches('#').to_owned(), pointer.clone());
                    }
                    "$anchor" | "$dynamicAnchor" => {
                        self.anchors.insert(text.to_owned(), pointer.clone());
                    }
                    _ => {}
                }
            }
            pointer.push('/');
            pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            self.add(inner, pointer);
            pointer.truncate(length);
        }
        for (at, inner) in value.as_array().into_iter().flatten().enumerate() {
            let _ = write!(pointer, "/{at}");
            self.add(inner, pointer);
            pointer.truncate(length);
        }
    }

    /// Where a reference leads; `None` out of the schema, to one of the drafts.
    fn target<'s>(&self, root: &'s Value, reference: &str) -> Option<&'s Value> {
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decoded(fragment);
        let at = |base: &str| {
            if fragment.is_empty() || fragment.starts_with('/') {
                return root.pointer(&format!("{base}{fragment}"));
            }
            root.pointer(self.anchors.get(&*fragment)?)
        };
        if file.is_empty() {
            // Inside of a schema with an `$id` it starts there.
            return at("").or_else(|| self.ids.values().find_map(|base| at(base)));
        }
        let mut named =
            self.ids.iter().filter(|(id, _)| id.ends_with(file.trim_start_matches("./")));
        named.find_map(|(_, base)| at(base))
    }

    /// What can be done with a value within the bounds.
    pub fn affordable(&self, schema: &Value, value: &Value) -> Affordable {
        if !self.any && size(value).saturating_mul(self.size) <= SMALL {
            return Affordable::Errors;
        }
        let mut counter =
            Counter { root: schema, bounds: self, counted: HashMap::new(), failed: false };
        let cost = counter.count(schema, value, 0);
        if counter.failed || cost.steps > MAX_STEPS {
            Affordable::Nothing
        } else if cost.error_steps > MAX_ERROR_STEPS {
            Affordable::Validity
        } else {
            Affordable::Errors
        }
    }
}

fn percent_decoded(fragment: &str) -> Cow<'_, str> {
    if !fragment.contains('%') {
        return fragment.into();
    }
    let bytes = fragment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = fragment.get(at + 1..at + 3).filter(|_| byte == b'%');
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(value.unwrap_or(byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned().into()
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Upper bounds.
#[derive(Clone, Copy, Default)]
struct Cost {
    steps: u64,
    error_steps: u64,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.error_steps = self.error_steps.saturating_add(other.error_steps);
    }
}

struct Counter<'s> {
    root: &'s Value,
    bounds: &'s Bounds,
    /// By the addresses of the schema and the value; `None` while it is being counted.
    counted: HashMap<(usize, usize), Option<Cost>>,
    failed: bool,
}

impl<'s> Counter<'s> {
    /// Every pair is counted once, however often the validator comes to it.
    fn count(&mut self, schema: &'s Value, value: &Value, depth: usize) -> Cost {
        let Value::Object(keywords) = schema else { return Cost { steps: 1, error_steps: 1 } };
        if depth > MAX_DEPTH || self.counted.len() > MAX_COUNTED {
            self.failed = true;
        }
        if self.failed {
            return Cost::default();
        }
        let key = (std::ptr::from_ref(schema) as usize, std::ptr::from_ref(value) as usize);
        match self.counted.get(&key) {
            Some(Some(cost)) => return *cost,
            // A schema that leads back to itself for the same value ends there.
            Some(None) => return Cost { steps: 1, error_steps: 1 },
            None => {}
        }
        self.counted.insert(key, None);
        let mut cost = Cost { steps: 1, error_steps: 1 };
        self.in_place(keywords, value, depth, &mut cost);
        match value {
            Value::Array(items) => self.items(keywords, items, depth, &mut cost),
            Value::Object(fields) => self.fields(keywords, fields, depth, &mut cost),
            _ => {}
        }
        self.counted.insert(key, Some(cost));
        cost
    }

    /// The schemas that hold for the value itself.
    fn in_place(
        &mut self,
        keywords: &'s Map<String, Value>,
        value: &Value,
        depth: usize,
        cost: &mut Cost,
    ) {
        for keyword in REFERENCES {
            let reference = keywords.get(keyword).and_then(Value::as_str);
            let target = reference.and_then(|it| self.bounds.target(self.root, it));
            if let Some(target) = target {
                cost.add(self.count(target, value, depth + 1));
            }
        }
        for inner in IN_PLACE.iter().filter_map(|keyword| keywords.get(*keyword)) {
            cost.add(self.count(inner, value, depth + 1));
        }
        for keyword in ALTERNATIVES {
            let schemas = keywords.get(keyword).and_then(Value::as_array);
            let schemas = schemas.map(Vec::as_slice).unwrap_or_default();
            let only = if keyword == "allOf" { None } else { self.only(schemas, value) };
            for (at, inner) in schemas.iter().enumerate() {
                let Cost { steps, error_steps } = self.count(inner, value, depth + 1);
                let steps = if only.is_some_and(|only| only != at) { 1 } else { steps };
                // It is decided whether the alternative holds, then why not.
                let repeated = if keyword == "allOf" { 0 } else { size(value) as u64 };
                let error_steps = error_steps.saturating_add(steps).saturating_add(repeated);
                cost.add(Cost { steps, error_steps });
            }
        }
        for inner in ["dependentSchemas", "dependencies"].iter().filter_map(|it| keywords.get(*it))
        {
            for inner in inner.as_object().into_iter().flat_map(Map::values) {
                cost.add(self.count(inner, value, depth + 1));
            }
        }
    }

    fn items(
        &mut self,
        keywords: &'s Map<String, Value>,
        items: &[Value],
        depth: usize,
        cost: &mut Cost,
    ) {
        for keyword in OF_ITEMS {
            let Some(inner) = keywords.get(keyword).filter(|inner| inner.is_object()) else {
                continue;
            };
            for item in items {
                cost.add(self.count(inner, item, depth + 1));
            }
        }
        for keyword in ["prefixItems", "items"] {
            let schemas = keywords.get(keyword).and_then(Value::as_array);
            for (inner, item) in schemas.into_iter().flatten().zip(items) {
                cost.add(self.count(inner, item, depth + 1));
            }
        }
    }

    fn fields(
        &mut self,
        keywords: &'s Map<String, Value>,
        fields: &Map<String, Value>,
        depth: usize,
        cost: &mut Cost,
    ) {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        for (name, field) in fields {
            let own = properties.and_then(|it| it.get(name));
            let others = OF_FIELDS.iter().filter_map(|keyword| keywords.get(*keyword));
            let others = others.filter(|_| own.is_none());
            let patterns = patterns.into_iter().flat_map(Map::values);
            for inner in own.into_iter().chain(patterns).chain(others) {
                cost.add(self.count(inner, field, depth + 1));
            }
        }
    }

    /// The only alternative that can hold, where each of at least three requires one property with a
    /// constant of its own: the validator looks at no other.
    fn only(&self, schemas: &'s [Value], value: &Value) -> Option<usize> {
        let fields = value.as_object().filter(|_| schemas.len() >= 3)?;
        let constants: Option<Vec<_>> = schemas.iter().map(|it| self.constants(it)).collect();
        let constants = constants?;
        let is_distinct = |name: &str| {
            let mut values: Vec<_> =
                constants.iter().filter_map(|all| all.get(name).copied()).collect();
            values.sort_unstable();
            values.dedup();
            values.len() == schemas.len()
        };
        let name = constants.first()?.keys().filter(|name| is_distinct(name)).min()?;
        let given = fields.get(*name).and_then(Value::as_str);
        let fitting = constants.iter().position(|all| all.get(name).copied() == given);
        // No alternative is looked at when none fits.
        Some(fitting.unwrap_or(schemas.len()))
    }

    /// The required properties of a schema that have one value.
    fn constants(&self, schema: &'s Value) -> Option<HashMap<&'s str, &'s str>> {
        let mut schema = schema;
        for _ in 0..16 {
            let reference = schema.get("$ref").and_then(Value::as_str);
            match reference.and_then(|it| self.bounds.target(self.root, it)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        let required = schema.get("required")?.as_array()?.iter().filter_map(Value::as_str);
        let properties = schema.get("properties")?.as_object()?;
        let constant = |name: &'s str| {
            let property = properties.get(name)?;
            let listed = property.get("enum").and_then(Value::as_array).filter(|it| it.len() == 1);
            let value = property.get("const").or_else(|| listed?.first())?;
            Some((name, value.as_str()?))
        };
        let constants: HashMap<_, _> = required.filter_map(constant).collect();
        (!constants.is_empty()).then_some(constants)
    }
}
