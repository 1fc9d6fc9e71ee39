//! Keys from headers, bodies, paths and queries.

use std::net::Ipv4Addr;
use std::path::Path;

use http::uri::PathAndQuery;
use http::{Method, Version};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::{Mono, Wall};
use crate::config;
use crate::flow::Prefer;
use crate::flow::Routes;
use crate::telemetry::metrics::Metrics;
use crate::upstream::headers::Caller;

/// The tracking number, date and scene of a daily query, joined without separators.
const PARCEL: &str = r#"{ "trackingNo": "SF1234567890", "batchDate": "2026-10-12", "n": 7 }"#;

/// A request on a route whose `idempotency` is this.
fn request(keys: &str, target: &str, fields: &[(&'static str, &str)], body: &str) -> Request {
    let text = format!(
        "routes:\n  - name: r\n    match: {{ path: \"/track/{{id}}/**\" }}\n    upstream: {{ url: \
         \"http://tool\" }}\n    idempotency: {{ {keys} }}\n"
    );
    let config = config::parse(&text, "test", Path::new("/"), &|_| None).unwrap();
    let routes = Routes::build(&config.routes, &Metrics::new("0"), &[], 1).unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    Request {
        route: routes.named("r").unwrap(),
        client: ClientName::anonymous(),
        call_id: CallId::parse(b"c").unwrap(),
        source: IdSource::Client,
        minted: false,
        method: Method::POST,
        target: PathAndQuery::try_from(target).unwrap(),
        authority: None,
        headers: headers.into(),
        body: Bytes::from(body.to_owned()),
        caller: Arc::new(Caller::at(Ipv4Addr::LOCALHOST.into())),
        version: Version::HTTP_11,
        gone: CancellationToken::new(),
        received: Mono(0),
        prefer: Prefer::default(),
        promised: false,
        promise: None,
        first_seen: None,
    }
}

/// The key of a request with this template, or the code of its refusal.
fn derived_by(key: &str, hash: &str, target: &str, body: &str) -> Result<String, Code> {
    let keys = format!("key: \"{key}\", hash: {hash}");
    let request = request(&keys, target, &[("x-batch", "b 1")], body);
    match of(&request, Wall(0)) {
        Ok(key) => Ok(key.expect("the template makes one").text.to_string()),
        Err(problem) => Err(problem.code),
    }
}

/// The key of a request that brings these lines of its own, or the code of its refusal.
fn brought(lines: &[&str]) -> Result<Option<String>, Code> {
    let fields: Vec<_> = lines
        .iter()
        .map(|line| ("idempotency-key", *line))
        .collect();
    let request = request("window: 24h", "/track/1/x", &fields, "");
    match of(&request, Wall(0)) {
        Ok(key) => Ok(key.map(|key| key.text.to_string())),
        Err(problem) => Err(problem.code),
    }
}

#[test]
fn the_clients_key_is_a_bare_token_or_a_quoted_string() {
    let longest = "k".repeat(255);
    let some = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(brought(&[]), Ok(None));
    assert_eq!(brought(&["k"]), some("k"));
    assert_eq!(brought(&["\"k\""]), some("k"));
    assert_eq!(brought(&[r#""a \"b\" \\ c""#]), some(r#"a "b" \ c"#));
    assert_eq!(brought(&["t1:k"]), some("t1:k"));
    assert_eq!(brought(&[&longest]), some(&longest));
    let too_long = "k".repeat(256);
    for bad in [
        &[""][..],
        &["\"\""],
        &["k", "k"],
        &[&too_long],
        &["a b"],
        &["a,b"],
        &["\"open"],
        &["\"k\";p=1"],
        &["\"bad \\x\""],
        &["\" k\""],
        &["caf\u{e9}"],
    ] {
        assert_eq!(brought(bad), Err(Code::BadRequest), "{bad:?}");
    }
}

#[test]
fn a_key_is_derived_as_it_is_made_elsewhere() {
    let template = "{body:/trackingNo}{body:/batchDate}track_sync";
    let by = |hash| derived_by(template, hash, "/track/1/x", PARCEL);
    assert_eq!(by("md5").unwrap(), "3cd21ff31b464f02319136e8ce6d3de2");
    assert_eq!(by("none").unwrap(), "SF12345678902026-10-12track_sync");
    assert_eq!(
        by("sha256").unwrap(),
        hex(&Sha256::digest("SF12345678902026-10-12track_sync"))
    );
    let keys = format!("key: \"{template}\", hash: md5");
    let key = of(&request(&keys, "/track/1/x", &[], PARCEL), Wall(0)).unwrap();
    let business = key.and_then(|key| key.business);
    assert_eq!(
        business.as_deref(),
        Some("SF12345678902026-10-12track_sync")
    );
}

#[test]
fn every_place_is_read_for_certain_or_refused() {
    let plain = |key, target, body| derived_by(key, "none", target, body);
    let ok = |text: &str| Ok(text.to_owned());
    let missing = Err(Code::BadRequest);
    assert_eq!(plain("{header:X-Batch}!", "/track/1/x", ""), ok("b 1!"));
    assert_eq!(plain("{path:id}", "/track/a%2Fb/x", ""), ok("a/b"));
    assert_eq!(
        plain("{query:q}", "/track/1/x?q=a+b%21&r=1", ""),
        ok("a b!")
    );
    assert_eq!(plain("{body:/n}", "/track/1/x", PARCEL), ok("7"));
    assert_eq!(plain("{header:X-None}", "/track/1/x", ""), missing);
    assert_eq!(plain("{query:q}", "/track/1/x", ""), missing);
    assert_eq!(plain("{query:q}", "/track/1/x?q=1&q=2", ""), missing);
    assert_eq!(plain("{query:q}", "/track/1/x?q=", ""), missing);
    assert_eq!(plain("{body:/none}", "/track/1/x", PARCEL), missing);
    assert_eq!(plain("{body:/n}", "/track/1/x", "no json"), missing);
    assert_eq!(
        plain("{body:/n}", "/track/1/x", r#"{"n":1,"n":2}"#),
        missing
    );
    let wide = r#"{"n":"\u00e9"}"#;
    assert_eq!(plain("{body:/n}", "/track/1/x", wide), missing);
    assert!(derived_by("{body:/n}", "md5", "/track/1/x", wide).is_ok());
}

#[test]
fn the_clients_key_comes_before_a_derived_one_and_required_demands_any() {
    let keys = "key: \"{body:/n}\", hash: none, required: true";
    let own = [("idempotency-key", "own")];
    let text = |request| {
        of(&request, Wall(0))
            .unwrap()
            .map(|key| key.text.to_string())
    };
    assert_eq!(
        text(request(keys, "/track/1/x", &own, PARCEL)).unwrap(),
        "own"
    );
    assert_eq!(text(request(keys, "/track/1/x", &[], PARCEL)).unwrap(), "7");
    let none = of(
        &request("required: true", "/track/1/x", &[], PARCEL),
        Wall(0),
    );
    assert_eq!(none.unwrap_err().code, Code::IdempotencyKeyRequired);
}

#[test]
fn the_body_takes_the_key_in_its_field_or_is_refused() {
    let keys = "send: { body: /requestId }";
    let key = Key {
        text: "k".into(),
        business: None,
        windowed: None,
    };
    let put = |fields: &[(&'static str, &str)], body: &str| {
        in_body(&request(keys, "/track/1/x", fields, body), &key).map_err(|problem| problem.code)
    };
    let set = put(&[], "{ \"n\": 1.50 }").unwrap().unwrap();
    assert_eq!(set, "{\"requestId\":\"k\", \"n\": 1.50 }");
    let overwritten = put(&[], r#"{"requestId":"theirs"}"#).unwrap().unwrap();
    assert_eq!(overwritten, r#"{"requestId":"k"}"#);
    for body in ["", "a=1", "[]", r#"{"requestId":1,"requestId":2}"#] {
        assert_eq!(put(&[], body), Err(Code::BadRequest), "{body}");
    }
    let packed = put(&[("content-encoding", "gzip")], "{}");
    assert_eq!(packed, Err(Code::BadRequest));
    let untouched = request("window: 24h", "/track/1/x", &[], "{}");
    assert_eq!(in_body(&untouched, &key).unwrap(), None);
}
