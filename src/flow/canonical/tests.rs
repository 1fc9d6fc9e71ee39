//! Bodies that are the same request, and bodies that are not.

use proptest::prelude::*;

use super::*;
use crate::upstream::json::tests::any_json;

fn places(exclude: &[&str]) -> Vec<JsonPointer> {
    let parse = |place: &&str| JsonPointer::parse(place).unwrap();
    exclude.iter().map(parse).collect()
}

fn form(body: &str, exclude: &[&str]) -> Option<String> {
    let form = canonical(body.as_bytes(), &places(exclude))?;
    Some(String::from_utf8(form).unwrap())
}

#[test]
fn a_body_has_one_form() {
    let table = [
        (r#"{"amt":200}"#, r#"{"amt":2e2}"#),
        (r#" { "amt" : 200.0 } "#, r#"{"amt":2e2}"#),
        (r#"{"amt":2E+2}"#, r#"{"amt":2e2}"#),
        (r#"{"amt":0.2e3}"#, r#"{"amt":2e2}"#),
        (
            r#"{"b":1,"a":[1,true,null,{"d":[],"c":{}}]}"#,
            r#"{"a":[1e0,true,null,{"c":{},"d":[]}],"b":1e0}"#,
        ),
        (r#"{"\u0061":"\u00e9\/"}"#, "{\"a\":\"\u{e9}/\"}"),
        ("-0.0", "0"),
        ("-0", "0"),
        ("0e9", "0"),
        ("-12.340", "-1234e-2"),
        (
            "12345678901234567890.1234567890123456789",
            "123456789012345678901234567890123456789e-19",
        ),
        ("1e9223372036854775807", "1e9223372036854775807"),
        ("10e9223372036854775807", "10e9223372036854775807"),
        ("1e99999999999999999999", "1e99999999999999999999"),
        ("\"\"", "\"\""),
        ("[[],[]]", "[[],[]]"),
    ];
    for (body, expected) in table {
        assert_eq!(form(body, &["/none"]).as_deref(), Some(expected), "{body}");
    }
}

#[test]
fn what_is_excluded_is_as_if_it_were_not_there() {
    let table = [
        (r#"{"n":1,"at":2}"#, &["/at"][..], r#"{"n":1e0}"#),
        (r#"{"at":2}"#, &["/at"], "{}"),
        (r#"{"n":1}"#, &["/at"], r#"{"n":1e0}"#),
        (
            r#"{"z":{"at":2,"n":1},"at":3}"#,
            &["/z/at"],
            r#"{"at":3e0,"z":{"n":1e0}}"#,
        ),
        (r#"{"z":{"at":2}}"#, &["/z", "/z/at"], "{}"),
        (r#"[1,2,3]"#, &["/0", "/2"], "[2e0]"),
        (r#"[{"at":1},{"at":1}]"#, &["/1/at"], r#"[{"at":1e0},{}]"#),
        (r#"{"a/b":1,"m~n":2,"":3}"#, &["/a~1b", "/m~0n", "/"], "{}"),
        ("7", &["/at"], "7e0"),
    ];
    for (body, exclude, expected) in table {
        assert_eq!(form(body, exclude).as_deref(), Some(expected), "{body}");
    }
}

#[test]
fn what_has_no_one_form_is_compared_byte_for_byte() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for body in [
        "",
        "{",
        "a=1",
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"\u0062":1}}"#,
        r#"["\ud800"]"#,
        &deep,
    ] {
        assert_eq!(form(body, &["/at"]), None, "{body}");
    }
    assert_eq!(canonical(b"[\"\xff\"]", &places(&["/at"])), None);
    let of = |body: &str| fingerprint(&Method::POST, "/a", body.as_bytes(), &places(&["/at"]));
    assert_ne!(of("a=1"), of("a=1 "));
    assert_eq!(of(r#"{"n":1,"at":1}"#), of(r#"{ "n": 1.0 }"#));
    let plain = |body: &str| fingerprint(&Method::POST, "/a", body.as_bytes(), &[]);
    assert_ne!(plain(r#"{"n":1}"#), plain(r#"{ "n":1}"#));
    let other = fingerprint(&Method::PUT, "/a", b"{}", &places(&["/at"]));
    assert_ne!(of("{}"), other);
}

proptest! {
    #[test]
    fn equal_documents_and_only_they_have_the_same_form(a in any_json(), b in any_json()) {
        let none = places(&["/none"]);
        let of = |text: String| canonical(text.as_bytes(), &none);
        let pretty = serde_json::to_string_pretty(&a).unwrap();
        let form = of(pretty);
        prop_assert!(form.is_some());
        prop_assert_eq!(&form, &of(a.to_string()));
        prop_assert_eq!(form == of(b.to_string()), a == b);
        // It is its own form, and says the same.
        let text = String::from_utf8(form.clone().unwrap()).unwrap();
        prop_assert_eq!(of(text), form);
    }

    #[test]
    fn any_bytes_are_taken(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = fingerprint(&Method::POST, "/", &body, &places(&["/a"]));
    }
}
