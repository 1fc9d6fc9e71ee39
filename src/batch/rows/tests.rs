//! Rows of either format, good and bad.

use super::*;

type Read = Vec<Result<(u32, String), (u32, String)>>;

fn read(format: Format, text: &[u8]) -> Result<Read, Trouble> {
    let mut rows = Rows::open(format, text)?;
    let mut all = Vec::new();
    while let Some(row) = rows.row()? {
        all.push(match row {
            Ok(row) => Ok((row.line, String::from_utf8(row.object().to_vec()).unwrap())),
            Err(bad) => Err((bad.line, bad.why)),
        });
    }
    Ok(all)
}

#[test]
fn a_row_is_the_object_of_its_columns() {
    let text = "\u{feff}trackingNo, 场景\r\nRX1,签收\n\"RX\"\"2\",\n";
    let rows = read(Format::Csv, text.as_bytes()).unwrap();
    let expected = vec![
        Ok((2, r#"{"trackingNo":"RX1","场景":"签收"}"#.to_owned())),
        Ok((3, r#"{"trackingNo":"RX\"2","场景":""}"#.to_owned())),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_json_line_is_its_own_body_byte_for_byte() {
    let text = b"\n {\"b\": 1,  \"a\":\"x\"} \r\n[1]\n{\"c\":\n{}";
    let rows = read(Format::JsonLines, text).unwrap();
    assert_eq!(rows[0], Ok((2, "{\"b\": 1,  \"a\":\"x\"}".to_owned())));
    assert_eq!(rows[1].as_ref().unwrap_err().0, 3);
    assert_eq!(rows[2].as_ref().unwrap_err().0, 4);
    assert_eq!(rows[3], Ok((5, "{}".to_owned())));
}

#[test]
fn a_bad_row_is_reported_with_its_line_and_the_others_go_on() {
    let rows = read(Format::Csv, b"a,b\n1\n2,3\n4,5,6\n8,9\n").unwrap();
    let bad: Vec<_> = rows.iter().filter_map(|row| row.as_ref().err()).collect();
    let lines: Vec<_> = bad.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 4]);
    assert!(bad[0].1.contains("1 fields, the header row has 2"));
    assert_eq!(rows.len(), 4);
}

#[test]
fn a_row_that_names_a_column_twice_is_a_bad_one() {
    let text = "{\"a\":1,\"n\":{\"x\":1,\"x\":2}}\n{\"a\":1,\"b\":2,\"\\u0061\":3}\n";
    let rows = read(Format::JsonLines, text.as_bytes()).unwrap();
    assert!(rows[0].is_ok(), "what is inside a column is the tool's");
    let (line, why) = rows[1].as_ref().unwrap_err();
    assert_eq!(
        (*line, why.as_str()),
        (2, "the name `a` stands in it twice")
    );
}

#[test]
fn a_file_of_another_kind_is_told_what_it_is() {
    let told = |text: &[u8]| read(Format::Csv, text).unwrap_err().to_string();
    for (text, word) in [
        (&b""[..], "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"a,b\n", "no other"),
        (b"PK\x03\x04\0\0", "binary"),
        (b"\xff\xfea\0", "UTF-16"),
        (b"\xb5\xa5\xba\xc5,b\n1,2\n", "--encoding gbk"),
        (b"a,b\n1,2\n\xc4\xe3,7\n8,9\n", "line 3 is no UTF-8"),
        (b"a,\n1,2\n", "column 2 has no name"),
        (b"a,a\n1,2\n", "twice"),
        (b"a,b\n1,\"2\n", "line 2 opens a quote"),
    ] {
        assert!(told(text).contains(word), "{}", told(text));
    }
    let none = read(Format::JsonLines, b"\n\n").unwrap_err();
    assert!(matches!(none, Trouble::Empty));
}

#[test]
fn a_format_is_known_by_name_and_by_type() {
    assert_eq!(Format::of_name("night.CSV"), Some(Format::Csv));
    assert_eq!(Format::of_name("a.b.jsonl"), Some(Format::JsonLines));
    assert_eq!(Format::of_name("csv"), None);
    let typed = Format::of_type("text/csv; charset=utf-8");
    assert_eq!(typed, Some(Format::Csv));
    assert_eq!(Format::of_type("application/json"), None);
}

#[test]
fn values_are_texts_or_nothing() {
    let text = br#"{"s":"x","n":1.50,"t":true,"z":null,"o":{}}"#;
    let mut rows = Rows::open(Format::JsonLines, &text[..]).unwrap();
    let row = rows.row().unwrap().unwrap().unwrap();
    let value = |name| row.value(name).map(Cow::into_owned);
    assert_eq!(value("s").as_deref(), Some("x"));
    assert_eq!(value("n").as_deref(), Some("1.5"));
    assert_eq!(value("t").as_deref(), Some("true"));
    assert_eq!((value("z"), value("o"), value("q")), (None, None, None));
}
