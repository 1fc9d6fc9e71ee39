//! The JSON Schema of the file, read off the table of keys; editors use it while one types.
//!
//! It is committed as `config/callgate.schema.json`, and a test holds both equal. It says less
//! than `check`: rules between keys are not a schema's business. `${NAME}` may stand for any
//! scalar, so every scalar also takes such a text.

use serde_json::{Map, Value, json};

use super::file::keys::{Key, Kind, ROOT};

/// Text with at least one place to fill in.
const FILLED: &str = r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}";
/// As humantime reads it, with a unit at the end.
const DURATION: &str = r"^([0-9]+ *[A-Za-z]+ *)+$";
const SIZE: &str = r"^[0-9]+ *(B|KiB|MiB|GiB)$";

/// The schema, draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "callgate.yaml",
        "description": "The configuration of callgate, a tool-call gateway.",
    });
    if let (Value::Object(all), Value::Object(root)) = (&mut schema, section(ROOT)) {
        all.extend(root);
    }
    schema
}

/// The schema as it is committed.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", schema())
}

fn section(keys: &[Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut of = value(&key.kind);
        of["description"] = key.doc.trim().into();
        properties.insert(key.name.to_owned(), of);
    }
    let must: Vec<_> = keys
        .iter()
        .filter(|key| key.must)
        .map(|key| key.name)
        .collect();
    let mut shape = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !must.is_empty() {
        shape["required"] = must.into();
    }
    shape
}

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Text(form) | Kind::Secret(form) => json!({ "type": "string", "title": form }),
        Kind::Word(words) => or_filled(json!({ "enum": words })),
        Kind::Flag => or_filled(json!({ "type": "boolean" })),
        Kind::Whole { min, max } => {
            or_filled(json!({ "type": "integer", "minimum": min, "maximum": max }))
        }
        Kind::OneOf(numbers) => or_filled(json!({ "enum": numbers })),
        Kind::Number { min, max } => {
            or_filled(json!({ "type": "number", "minimum": min, "maximum": max }))
        }
        Kind::Duration { .. } => or_filled(json!({ "type": "string", "pattern": DURATION })),
        Kind::Size { .. } => or_filled(json!({ "type": "string", "pattern": SIZE })),
        Kind::List { of, min, max } => {
            json!({ "type": "array", "items": value(of), "minItems": min, "maxItems": max })
        }
        Kind::Named(of) => json!({ "type": "object", "additionalProperties": value(of) }),
        Kind::Section(keys) => {
            let mut shape = section(keys);
            // All keys commented out leaves nothing, which means the defaults.
            shape["type"] = json!(["object", "null"]);
            shape
        }
        Kind::Presence(keys) => section(keys),
    }
}

fn or_filled(shape: Value) -> Value {
    json!({ "anyOf": [shape, { "type": "string", "pattern": FILLED }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::{self, Tree};

    /// Set `CALLGATE_BLESS=1` to write the file anew.
    #[test]
    fn the_committed_schema_is_the_one_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/callgate.schema.json");
        if std::env::var_os("CALLGATE_BLESS").is_some() {
            std::fs::write(path, text()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        let wanted = text();
        let differs = committed
            .lines()
            .zip(wanted.lines())
            .position(|(a, b)| a != b);
        assert!(
            committed == wanted,
            "line {} differs; run this test with CALLGATE_BLESS=1 and commit the file",
            differs.map_or(0, |line| line + 1)
        );
    }

    #[test]
    fn every_key_of_the_samples_is_known_to_the_schema() {
        let samples = [
            include_str!("../../config/callgate.yaml"),
            include_str!("../../config/start.yaml"),
            include_str!("../../config/demo.yaml"),
            include_str!("tests/everything.yaml"),
        ];
        for sample in samples {
            known(&file::parse(sample, "sample").unwrap(), &schema(), "");
        }
    }

    #[test]
    fn an_unknown_key_would_be_noticed() {
        let tree = file::parse("routes: [{ name: a, nmae: b }]", "sample").unwrap();
        let noticed = std::panic::catch_unwind(|| known(&tree, &schema(), ""));
        assert!(noticed.is_err());
    }

    /// Walks a sample and the schema side by side.
    fn known(tree: &Tree, schema: &Value, path: &str) {
        match tree {
            Tree::Map(entries) => {
                for (key, tree) in entries {
                    let named = &schema["additionalProperties"];
                    let of = schema["properties"].get(key).unwrap_or(named);
                    assert!(of.is_object(), "{path}.{key} is not in the schema");
                    known(tree, of, &format!("{path}.{key}"));
                }
            }
            Tree::List(elements) => {
                for tree in elements {
                    known(tree, &schema["items"], path);
                }
            }
            Tree::Null | Tree::Flag(_) | Tree::Whole(_) | Tree::Number(_) | Tree::Text(_) => {
                let scalar = ["type", "anyOf", "enum"]
                    .iter()
                    .any(|key| schema.get(key).is_some());
                assert!(scalar, "{path} is no scalar in the schema");
            }
        }
    }
}
