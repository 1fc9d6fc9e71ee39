//! The one form in which JSON bodies are compared (`idempotency.exclude`): it says what the body
//! says without the excluded places, and nothing else has the same.

use callgate::config::template::JsonPointer;
use callgate::flow::fuzzing::one_form;
use serde_json::{Map, Value};

const EXCLUDED: [&str; 3] = ["/a", "/b/0", "/c/d"];

/// Brings `data` into its one form and compares what both say.
pub(super) fn check(data: &[u8]) {
    let places = EXCLUDED.map(|place| JsonPointer::parse(place).expect("a sound pointer"));
    let Some(form) = one_form(data, &places) else {
        return;
    };
    // The form has no excluded places any more, but in an array others have moved up.
    let none = [JsonPointer::parse("/none of them").expect("a sound pointer")];
    assert_eq!(
        one_form(&form, &none).as_deref(),
        Some(&*form),
        "it is its own form"
    );
    let (Ok(body), Ok(said)) = (serde_json::from_slice(data), serde_json::from_slice(&form)) else {
        // A number or text that this reader refuses.
        return;
    };
    let body = without(body, "");
    assert!(is_same(&body, &said), "{body} became {said}");
}

/// The document without what is excluded.
fn without(value: Value, at: &str) -> Value {
    let below = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
    let kept = |place: &str| !EXCLUDED.contains(&place);
    match value {
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, value)| (below(&name), name, value));
            let members = members.filter(|(place, ..)| kept(place));
            let members = members.map(|(place, name, value)| (name, without(value, &place)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(elements) => {
            let elements = elements.into_iter().enumerate();
            let elements = elements.map(|(n, value)| (below(&n.to_string()), value));
            let elements = elements.filter(|(place, _)| kept(place));
            Value::Array(
                elements
                    .map(|(place, value)| without(value, &place))
                    .collect(),
            )
        }
        other => other,
    }
}

/// Whether both say the same, as far as this reader's numbers go.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
            (a - b).abs() <= a.abs().max(b.abs()) * 1e-12 + f64::MIN_POSITIVE
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let found = |(name, a): (&String, &Value)| b.get(name).is_some_and(|b| is_same(a, b));
            a.len() == b.len() && a.iter().all(found)
        }
        _ => a == b,
    }
}
