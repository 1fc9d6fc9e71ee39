//! Comma-separated values, as spreadsheets read them (RFC 4180).
//!
//! Call ids and errors are written by others: a text that a spreadsheet would take for a formula
//! gets an apostrophe in front, as spreadsheets themselves write such a text.

use serde_json::Value;

/// What a spreadsheet takes for the beginning of a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// A heading of member names and a line for each item.
pub(super) fn rows(items: &[Value], members: &[&str]) -> String {
    let mut text = line(members.iter().map(|member| (*member).to_owned()));
    for item in items {
        text += &line(members.iter().map(|member| cell(&item[*member])));
    }
    text
}

/// One document as a heading and a line: its members that are no lists and no documents.
pub(super) fn one(whole: &Value) -> String {
    let plain = |value: &Value| !value.is_array() && !value.is_object();
    let members = whole.as_object().into_iter().flatten();
    let members: Vec<&str> = members
        .filter(|(_, value)| plain(value))
        .map(|(name, _)| name.as_str())
        .collect();
    rows(std::slice::from_ref(whole), &members)
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
    cells.join(",") + "\r\n"
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.starts_with(FORMULA) => format!("'{text}"),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_is_a_cell_of_its_own_and_no_formula() {
        let items = [
            json!({"key": "LX1", "error": "reset, \"by\" peer\nagain", "count": -3, "due": null}),
            json!({"key": "=cmd()", "error": "-", "count": 0, "due": "2026-11-01T12:00:00.000Z"}),
        ];
        let expected = "key,error,count,due\r\n\
                        LX1,\"reset, \"\"by\"\" peer\nagain\",-3,\r\n\
                        '=cmd(),'-,0,2026-11-01T12:00:00.000Z\r\n";
        assert_eq!(rows(&items, &["key", "error", "count", "due"]), expected);
    }

    #[test]
    fn one_document_is_a_heading_and_a_line() {
        let whole = json!({"job": 3, "state": "DONE", "results": {"settled": 2}, "why": null});
        assert_eq!(one(&whole), "job,state,why\r\n3,DONE,\r\n");
    }
}
