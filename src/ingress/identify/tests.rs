//! Hosts, as heads name them. Call ids are tested over sockets, in `ingress/tests/ids`.

use http::{HeaderMap, HeaderValue};

use super::*;

fn headers(lines: &[(&'static str, &'static str)]) -> Fields {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers.into()
}

#[test]
fn the_target_outranks_the_host_field() {
    let fields = headers(&[("host", "field")]);
    let given = |uri: &'static str| host(&Uri::from_static(uri), &fields).map(str::to_owned);
    assert_eq!(given("/a").as_deref(), Some("field"));
    assert_eq!(given("http://target:1/a").as_deref(), Some("target:1"));
    assert_eq!(host(&Uri::from_static("/a"), &Fields::default()), None);
}

#[test]
fn http_1_1_has_one_host_and_others_at_most_one() {
    let hosts: [&[_]; 3] = [&[], &[("host", "a")], &[("host", "a"), ("host", "a")]];
    let sound = |version| hosts.map(|lines| host_is_sound(version, &headers(lines)));
    assert_eq!(sound(Version::HTTP_11), [false, true, false]);
    assert_eq!(sound(Version::HTTP_10), [true, true, false]);
    assert_eq!(sound(Version::HTTP_2), [true, true, false]);
}

#[test]
fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
    for host in [
        "",
        "t",
        "tools.internal",
        "a_b-c.d:8080",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:80",
        "a,b",
    ] {
        assert!(is_host(host.as_bytes()), "{host}");
    }
    for host in [
        ":80",
        "a b",
        "a/c",
        "a?x",
        "a#x",
        "u:p@h",
        "u@h",
        "h:99999999",
        "h:65536",
        "h:x",
        "h:+80",
        "h:80:80",
        "[::1",
        "::1",
        "\"x\"",
        "h\u{80}",
        "<h>",
        "h\\",
    ] {
        assert!(!is_host(host.as_bytes()), "{host}");
    }
}
