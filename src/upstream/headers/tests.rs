//! What a tool sees, field by field.

use super::*;
use crate::config::route::Upstream;
use crate::upstream::tests::peer;

fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    headers
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

fn tool(change: impl FnOnce(&mut Upstream)) -> std::sync::Arc<Tool> {
    let mut upstream = peer::upstream(&peer::endpoint("127.0.0.1:9000".parse().unwrap()));
    change(&mut upstream);
    Tool::new(&upstream, 1).unwrap()
}

fn prepared(mut headers: HeaderMap, id_field: &HeaderName) -> HeaderMap {
    let node = Node::new("n1");
    let hop = Hop {
        node: &node,
        version: Version::HTTP_11,
        forwarded: HeaderValue::from_static("for=192.0.2.9;host=h;proto=http"),
    };
    prepare(&mut headers, id_field, hop);
    headers
}

#[test]
fn what_ends_at_this_hop_goes_and_everything_else_travels() {
    let sent = fields(&[
        ("host", "h"),
        ("connection", "close, X-Private"),
        ("connection", "x-other ,, bad name,keep-alive"),
        ("x-private", "1"),
        ("x-other", "2"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("upgrade", "websocket"),
        ("transfer-encoding", "chunked"),
        ("expect", "100-continue"),
        ("prefer", "wait=5"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "keep-alive"),
        ("http2-settings", "x"),
        ("authorization", "Bearer x"),
        ("cookie", "a=1"),
        ("x-kept", "one"),
        ("x-kept", "two"),
    ]);
    assert_eq!(
        lines(&prepared(sent, &X_CALL_ID)),
        [
            "authorization: Bearer x",
            "cookie: a=1",
            "forwarded: for=192.0.2.9;host=h;proto=http",
            "host: h",
            "via: 1.1 callgate-n1",
            "x-kept: one",
            "x-kept: two",
        ]
    );
}

#[test]
fn no_connection_field_can_strip_what_the_call_needs() {
    let own = HeaderName::from_static("x-order-id");
    let sent = fields(&[
        (
            "connection",
            "X-Order-Id, x-call-id, Idempotency-Key, Authorization, traceparent, Host",
        ),
        ("x-order-id", "c1"),
        ("x-call-id", "other"),
        ("idempotency-key", "k"),
        ("authorization", "Bearer x"),
        ("traceparent", "00-1-2-03"),
        ("host", "h"),
    ]);
    let kept = prepared(sent, &own);
    for name in [
        "x-order-id",
        "x-call-id",
        "idempotency-key",
        "authorization",
        "traceparent",
        "host",
    ] {
        assert!(kept.contains_key(name), "{name}");
    }
    assert!(!kept.contains_key("connection"));
}

#[test]
fn traces_of_earlier_hops_stay_in_front_of_ours() {
    let sent = fields(&[
        ("via", "1.0 fred, 1.1 nowhere.com"),
        ("forwarded", "for=10.0.0.1"),
    ]);
    let headers = prepared(sent, &X_CALL_ID);
    let all = |name| {
        headers
            .get_all(name)
            .iter()
            .map(|v| v.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("via"), ["1.0 fred, 1.1 nowhere.com", "1.1 callgate-n1"]);
    assert_eq!(
        all("forwarded"),
        ["for=10.0.0.1", "for=192.0.2.9;host=h;proto=http"]
    );
}

#[test]
fn a_send_is_named_exactly_once_whatever_the_caller_wrote() {
    let id = CallId::parse(b"c%1\"$x").unwrap();
    let sent = fields(&[
        ("x-call-id", "c%1\"$x"),
        ("x-call-id", "second"),
        ("x-call-attempt", "77"),
        ("x-call-retry-cause", "timeout"),
        ("x-call-id-source", "gateway"),
        ("idempotency-key", "\"k\""),
        ("content-length", "999"),
        ("host", "caller.example"),
    ]);
    let mut headers = prepared(sent, &X_CALL_ID);
    let key = HeaderValue::from_static("k");
    let client = ClientName::new("billing");
    let mut mark = Mark {
        field: &X_CALL_ID,
        call_id: &id,
        client: &client,
        source: IdSource::Client,
        attempt: 1,
        cause: None,
        key: Some((&IDEMPOTENCY_KEY, &key)),
        traceparent: None,
    };
    let tool = tool(|_| ());
    stamp(&mut headers, &mark, &tool, &Method::POST, Length::Known(19));
    let first = [
        "content-length: 19",
        "forwarded: for=192.0.2.9;host=h;proto=http",
        "host: 127.0.0.1:9000",
        "idempotency-key: k",
        "via: 1.1 callgate-n1",
        "x-call-attempt: 1",
        "x-call-id: c%1\"$x",
    ];
    assert_eq!(lines(&headers), first);
    // The same fields serve for the next send.
    let trace = HeaderValue::from_static("00-a-b-01");
    mark.attempt = 4;
    mark.cause = Some(Cause::Disconnect);
    mark.source = IdSource::Gateway;
    mark.traceparent = Some(&trace);
    stamp(&mut headers, &mark, &tool, &Method::POST, Length::Known(0));
    let fourth = [
        "content-length: 0",
        "forwarded: for=192.0.2.9;host=h;proto=http",
        "host: 127.0.0.1:9000",
        "idempotency-key: k",
        "traceparent: 00-a-b-01",
        "via: 1.1 callgate-n1",
        "x-call-attempt: 4",
        "x-call-id-source: gateway",
        "x-call-id: c%1\"$x",
        "x-call-retry-cause: disconnect",
    ];
    assert_eq!(lines(&headers), fourth);
}

#[test]
fn a_length_is_believed_only_when_it_is_written_as_it_would_be() {
    let table = [
        ("0", 0, true),
        ("19", 19, true),
        ("19", 190, false),
        ("190", 19, false),
        ("019", 19, false),
        ("00", 0, false),
        ("", 0, false),
        ("1x", 19, false),
        ("18446744073709551615", u64::MAX, true),
    ];
    for (written, length, expected) in table {
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, written.parse().unwrap())]);
        assert_eq!(announces_exactly(&headers, length), expected, "{written}");
    }
    let twice = fields(&[("content-length", "5"), ("content-length", "5")]);
    assert!(!announces_exactly(&twice, 5));
}

#[test]
fn framing_is_the_gateways_own() {
    let id = CallId::parse(b"c1").unwrap();
    let client = ClientName::new("billing");
    let mark = Mark {
        field: &X_CALL_ID,
        call_id: &id,
        client: &client,
        source: IdSource::Client,
        attempt: 1,
        cause: None,
        key: None,
        traceparent: None,
    };
    let tool = tool(|_| ());
    let table = [
        (Method::POST, Length::Known(0), Some("9"), Some("0"), false),
        (Method::GET, Length::Known(0), Some("9"), None, false),
        (Method::DELETE, Length::Known(3), None, Some("3"), false),
        (Method::GET, Length::Known(3), Some("9"), Some("3"), false),
        (
            Method::POST,
            Length::AsAnnounced,
            Some("9"),
            Some("9"),
            false,
        ),
        (Method::POST, Length::AsAnnounced, None, None, false),
        (
            Method::GET,
            Length::AsAnnounced,
            Some("9"),
            Some("9"),
            false,
        ),
        (Method::GET, Length::AsAnnounced, None, None, true),
    ];
    for (method, length, announced, expected, chunked) in table {
        let mut headers = HeaderMap::new();
        if let Some(announced) = announced {
            headers.insert(CONTENT_LENGTH, announced.parse().unwrap());
        }
        stamp(&mut headers, &mark, &tool, &method, length);
        let length_sent = headers.get(CONTENT_LENGTH).map(|v| v.to_str().unwrap());
        assert_eq!(length_sent, expected, "{method} {length:?} {announced:?}");
        assert_eq!(
            headers.contains_key(TRANSFER_ENCODING),
            chunked,
            "{method} {length:?}"
        );
    }
}

#[test]
fn the_host_is_the_tools_or_the_callers_and_configured_fields_win() {
    let id = CallId::parse(b"c1").unwrap();
    let client = ClientName::new("billing");
    let mark = Mark {
        field: &X_CALL_ID,
        call_id: &id,
        client: &client,
        source: IdSource::Client,
        attempt: 1,
        cause: None,
        key: None,
        traceparent: None,
    };
    let set = fields(&[
        ("authorization", "Bearer tool"),
        ("x-two", "a"),
        ("x-two", "b"),
    ]);
    let keep = tool(|upstream| {
        upstream.host = HostMode::Keep;
        upstream.headers = set.clone();
    });
    let mut headers = fields(&[
        ("host", "caller"),
        ("authorization", "Bearer me"),
        ("x-two", "c"),
    ]);
    stamp(&mut headers, &mark, &keep, &Method::GET, Length::Known(0));
    assert_eq!(
        lines(&headers),
        [
            "authorization: Bearer tool",
            "host: caller",
            "x-call-attempt: 1",
            "x-call-id: c1",
            "x-two: a",
            "x-two: b"
        ]
    );
    // Over HTTP/2 a caller's host may be no field at all.
    let mut headers = HeaderMap::new();
    stamp(&mut headers, &mark, &keep, &Method::GET, Length::Known(0));
    assert_eq!(headers[HOST], "127.0.0.1:9000");
}

#[test]
fn a_request_that_was_here_before_is_recognised() {
    let node = Node::new("n1");
    let table: [(&[&str], bool); 9] = [
        (&[], false),
        (&["1.1 callgate-n1"], true),
        (&["1.1 Callgate-N1 (comment)"], true),
        (&["HTTP/1.1 callgate-n1"], true),
        (&["1.0 fred,  2   callgate-n1 , 1.1 x"], true),
        (&["1.0 fred", "2 callgate-n1"], true),
        (&["1.1 callgate-n10"], false),
        (&["1.1 proxy (callgate-n1)"], false),
        (&["callgate-n1", ",,", ""], false),
    ];
    for (via, expected) in table {
        let mut headers = HeaderMap::new();
        for line in via {
            headers.append(VIA, line.parse().unwrap());
        }
        assert_eq!(node.is_named_in(&headers), expected, "{via:?}");
    }
    assert_eq!(node.via(Version::HTTP_2), "2 callgate-n1");
    assert_eq!(node.via(Version::HTTP_10), "1.0 callgate-n1");
    assert_eq!(
        Node::new("bad näme,\r\n").via(Version::HTTP_11),
        "1.1 callgate-bad-n-me---"
    );
}

#[test]
fn forwarded_quotes_what_is_no_token() {
    let host = |text: &str| HeaderValue::from_str(text).unwrap();
    let table = [
        (
            "192.0.2.7",
            Some("tool.example"),
            "for=192.0.2.7;host=tool.example;proto=http",
        ),
        (
            "192.0.2.7",
            Some("tool:8080"),
            "for=192.0.2.7;host=\"tool:8080\";proto=http",
        ),
        ("::ffff:192.0.2.7", None, "for=192.0.2.7;proto=http"),
        (
            "2001:db8::1",
            Some("[::1]:80"),
            "for=\"[2001:db8::1]\";host=\"[::1]:80\";proto=http",
        ),
        ("192.0.2.7", Some("a\"b"), "for=192.0.2.7;proto=http"),
        ("192.0.2.7", Some(""), "for=192.0.2.7;host=\"\";proto=http"),
    ];
    for (peer, name, expected) in table {
        let name = name.map(host);
        let caller = Caller::at(peer.parse().unwrap());
        assert_eq!(
            caller.forwarded(name.as_ref().map(HeaderValue::as_bytes)),
            expected
        );
    }
}

#[test]
fn forwarded_names_the_host_of_this_request_and_not_of_the_last() {
    let caller = Caller::at([192, 0, 2, 7].into());
    let (a, b) = (HeaderValue::from_static("a"), HeaderValue::from_static("b"));
    for (host, expected) in [
        (Some(&a), "for=192.0.2.7;host=a;proto=http"),
        (Some(&a), "for=192.0.2.7;host=a;proto=http"),
        (Some(&b), "for=192.0.2.7;host=b;proto=http"),
        (None, "for=192.0.2.7;proto=http"),
        (None, "for=192.0.2.7;proto=http"),
        (Some(&a), "for=192.0.2.7;host=a;proto=http"),
    ] {
        assert_eq!(caller.forwarded(host.map(HeaderValue::as_bytes)), expected);
    }
}

#[test]
fn configured_fields_may_not_touch_what_the_gateway_answers_for() {
    use crate::upstream::SetupError;
    for name in [
        "x-call-id",
        "x-call-attempt",
        "content-length",
        "connection",
        "proxy-x",
        "via",
    ] {
        let mut upstream = peer::upstream(&peer::endpoint("127.0.0.1:9".parse().unwrap()));
        upstream.headers = fields(&[(name, "1")]);
        assert!(
            matches!(Tool::new(&upstream, 1), Err(SetupError::OwnField(_))),
            "{name}"
        );
    }
}

#[test]
fn paths_are_mapped_byte_for_byte() {
    use http::uri::PathAndQuery;
    let table: [(Option<&str>, &str, &str, &str); 13] = [
        (None, "", "/a/b?c=d", "/a/b?c=d"),
        (None, "/v1", "/a", "/v1/a"),
        (None, "/v1", "/", "/v1/"),
        (None, "/v1", "*", "*"),
        (Some("/orders"), "", "/orders/7", "/7"),
        (Some("/orders"), "", "/orders", "/"),
        (Some("/orders"), "", "/orders?x=1", "/?x=1"),
        (Some("/orders"), "/v1", "/orders?x=1", "/v1/?x=1"),
        (
            Some("/orders"),
            "/v1",
            "/orders/a%2Fb//c/../d",
            "/v1/a%2Fb//c/../d",
        ),
        (Some("/orders"), "", "/orders7", "/orders7"),
        (Some("/orders"), "/v1", "/Orders/7", "/v1/Orders/7"),
        (
            Some("/orders"),
            "",
            "/orders//evil.example/x",
            "//evil.example/x",
        ),
        (None, "", "//evil.example/x", "//evil.example/x"),
    ];
    for (prefix, base, asked, expected) in table {
        let tool = tool(|upstream| {
            upstream.strip_prefix = prefix.map(Into::into);
            upstream.endpoint.base_path = base.into();
        });
        let asked = PathAndQuery::try_from(asked).unwrap();
        assert_eq!(
            tool.target(&asked).unwrap().as_str(),
            expected,
            "{prefix:?} {base} {asked}"
        );
    }
}

#[test]
fn a_tool_that_asks_for_it_is_told_who_calls_whatever_the_caller_wrote() {
    let (id, client) = (CallId::parse(b"c").unwrap(), ClientName::new("billing"));
    let mark = Mark {
        field: &X_CALL_ID,
        call_id: &id,
        client: &client,
        source: IdSource::Client,
        attempt: 1,
        cause: None,
        key: None,
        traceparent: None,
    };
    let told = |tool: &Tool| {
        let mut headers = fields(&[("x-tenant", "shipping"), ("x-tenant", "root")]);
        stamp(&mut headers, &mark, tool, &Method::POST, Length::Known(1));
        let lines = headers.get_all("x-tenant").iter();
        lines
            .map(|line| line.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let tenants = |upstream: &mut Upstream| {
        upstream.tenant_header = Some(HeaderName::from_static("x-tenant"));
    };
    assert_eq!(told(&tool(tenants)), ["billing"]);
    // Any other tool gets what the caller sent.
    assert_eq!(told(&tool(|_| ())), ["shipping", "root"]);
}
