//! Addresses that name no tool, and pointers that point at nothing.

use super::{check, read, with_route};

/// Where an address may stand, with its place in the file and its path.
const ADDRESSES: [(&str, &str); 6] = [
    ("upstream: { url: \"@\" }", "3:22 routes[0].upstream.url"),
    (
        "upstream: { urls: [\"http://t:1\", \"@\"] }",
        "3:38 routes[0].upstream.urls[1]",
    ),
    (
        "upstream: { url: \"http://t\", formerly: [\"@\"] }",
        "3:45 routes[0].upstream.formerly[0]",
    ),
    (
        "upstream: { url: \"http://t\" }\nreceipt: { url: \"@\" }",
        "4:21 routes[0].receipt.url",
    ),
    (
        "upstream: { url: \"http://t\" }\nreceipt: {}\n\
         compensation: { reversal: { url: \"@\" } }",
        "5:38 routes[0].compensation.reversal.url",
    ),
    (
        "upstream: { url: \"http://t\" }\ncompensation: { alert: { webhook: \"@\" } }",
        "4:39 routes[0].compensation.alert.webhook",
    ),
];

#[test]
fn an_address_that_is_none_is_refused_wherever_it_stands() {
    let table = [
        ("ftp://t", "an http:// or https:// URL"),
        ("unix:/run/tool", "http:// or https:// URL"),
        ("http+unix://t/x", "an http:// or https:// URL"),
        ("//t/x", "http:// or https:// URL"),
        ("http://user@t/x", "Authorization in `upstream.headers`"),
        ("http://user:pw@t", "Authorization in `upstream.headers`"),
        ("http://t/x#y", "fragment"),
        ("http://t#y", "fragment"),
        ("http://t..x/y", "an http:// or https:// URL"),
        ("http://t:+80/y", "an http:// or https:// URL"),
    ];
    for (keys, place) in ADDRESSES {
        for (address, word) in table {
            let keys = keys.replace('@', address).replace('\n', "\n    ");
            let text = format!("routes:\n  - name: r\n    {keys}\n");
            check(&text, place, word);
        }
    }
    let query = with_route("upstream: { url: \"http://t?x#y\" }").replacen("    upstream", "#", 1);
    check(&query, "4:22 routes[0].upstream.url", "query or fragment");
    let alert = with_route("compensation: { alert: { webhook: \"http://t/a?b#c\" } }");
    check(
        &alert,
        "4:39 routes[0].compensation.alert.webhook",
        "fragment",
    );
}

#[test]
fn a_password_in_an_address_is_not_shown() {
    let wrong = [
        "url: \"http://user:pw@t\"",
        "url: \"https://user:pw@t/x\", nope: 1",
        "nope: 1, urls: [\"http://user:pw@t\"]",
        "url: \"http://user:pw@t\"]",
    ];
    for keys in wrong {
        let text = format!("routes:\n  - upstream: {{ {keys} }}\n");
        let shown = read(&text).unwrap_err().to_string();
        assert!(!shown.contains("pw"), "{shown}");
    }
}

#[test]
fn a_path_may_hold_a_url_and_an_at() {
    for url in [
        "/r?next=http://x@y/{call_id}",
        "/@r/{call_id}",
        "http://t/@r/{call_id}",
    ] {
        let text = with_route(&format!("receipt: {{ url: \"{url}\" }}"));
        assert!(read(&text).is_ok(), "{url}");
    }
}

#[test]
fn the_whole_receipt_is_neither_its_call_id_nor_its_fields() {
    let id = with_route("receipt: { call_id: \"\" }");
    let way_out = "an id that is not in a receipt is not compared";
    check(&id, "4:25 routes[0].receipt.call_id", way_out);
    for key in ["headers", "encoding"] {
        let text = with_route(&format!("receipt: {{ result: {{ {key}: \"\" }} }}"));
        check(&text, "4:", "a JSON pointer to a field");
    }
    // A receipt may be a word, and its own result.
    let whole = "receipt: { state: \"\", result: { status: \"\", body: \"\" } }";
    assert!(read(&with_route(whole)).is_ok());
}
