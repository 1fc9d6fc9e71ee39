//! What a submission says besides its rows, as the query of its address.
//!
//! Read by hand, because `header` may stand several times. A parameter nobody knows is refused: a
//! typing error in `strict` would otherwise run what it should have stopped.

use percent_encoding::percent_decode_str;

use crate::batch::intake::Order;
use crate::batch::recipe::Typed;
use crate::batch::rows::Format;
use crate::telemetry::log::escaped;

/// Items that run at once unless asked otherwise.
const WORKERS: u32 = 20;

/// Reads the query; `kind` is the `Content-Type`.
pub(super) fn order(query: &str, kind: Option<&str>) -> Result<Order, String> {
    let mut order = Order {
        name: String::new(),
        route: String::new(),
        client: None,
        workers: WORKERS,
        strict: false,
        format: Format::Csv,
        recipe: Typed::default(),
    };
    let mut format = kind.and_then(Format::of_type);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        match name {
            "name" => order.name = value,
            "route" => order.route = value,
            "client" => order.client = Some(value),
            "workers" => {
                let number = value.parse();
                order.workers = number.map_err(|_| "`workers` is a number.".to_owned())?;
            }
            "strict" => order.strict = flag(&value)?,
            "format" => {
                let named = match value.as_str() {
                    "csv" => Some(Format::Csv),
                    "jsonl" | "ndjson" => Some(Format::JsonLines),
                    _ => None,
                };
                let named = named.ok_or_else(|| "`format` is csv or jsonl.".to_owned())?;
                format = Some(named);
            }
            "method" => order.recipe.method = Some(value),
            "path" => order.recipe.path = Some(value),
            "body" => order.recipe.body = Some(value),
            "header" => order.recipe.headers.push(value),
            _ => {
                let shown = escaped(name.as_bytes());
                return Err(format!(
                    "`{shown}` is no parameter; there are name, route, client, workers, strict, \
                     format, method, path, body and header (as often as needed)."
                ));
            }
        }
    }
    if order.name.is_empty() || order.route.is_empty() {
        return Err("Give `name` (of the batch) and `route`.".to_owned());
    }
    order.format = format.ok_or_else(|| {
        "Say how the rows are written: Content-Type text/csv or application/x-ndjson, or \
         `format=csv|jsonl`."
            .to_owned()
    })?;
    Ok(order)
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("`strict` is true or false.".to_owned()),
    }
}

fn decoded(value: &str) -> Result<String, String> {
    let spaced = value.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| "The query is no UTF-8 once decoded.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_everything_but_the_rows() {
        let query = "name=n-1&route=track&workers=5&strict&method=PUT&path=/t/%7Bno%7D\
                     &header=X-A:+%7Ba%7D&header=X-B:1&body=%7B%7D&client=billing";
        let read = order(query, Some("text/csv")).unwrap();
        assert_eq!((read.name.as_str(), read.route.as_str()), ("n-1", "track"));
        assert_eq!((read.workers, read.strict), (5, true));
        assert_eq!(read.client.as_deref(), Some("billing"));
        assert_eq!(read.recipe.path.as_deref(), Some("/t/{no}"));
        assert_eq!(read.recipe.headers, ["X-A: {a}", "X-B:1"]);
        assert_eq!(read.format, Format::Csv);
        let lines = order("name=n&route=r&format=jsonl", None).unwrap();
        assert_eq!((lines.format, lines.workers), (Format::JsonLines, 20));
    }

    #[test]
    fn what_is_missing_or_unknown_is_refused_by_name() {
        for (query, kind, word) in [
            ("route=r", Some("text/csv"), "name"),
            ("name=n&route=r", None, "Content-Type"),
            ("name=n&route=r&stict=1", Some("text/csv"), "stict"),
            ("name=n&route=r&workers=x", Some("text/csv"), "workers"),
            ("name=n&route=r&strict=maybe", Some("text/csv"), "strict"),
            ("name=%ff&route=r", Some("text/csv"), "UTF-8"),
        ] {
            let refused = order(query, kind).map(|order| order.name).unwrap_err();
            assert!(refused.contains(word), "{query}: {refused}");
        }
    }
}
