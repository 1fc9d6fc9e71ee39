//! What an endpoint says, and what of it is information.

use super::*;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

const fn no(why: Why) -> RawAnswer {
    RawAnswer::Unknown(why)
}

const fn yes(state: State) -> RawAnswer {
    RawAnswer::State(state)
}

/// Status, media type and body of an answer to a question about `c1`, and what it means (C36).
#[rustfmt::skip]
const ANSWERS: [(&str, &str, &str, RawAnswer); 52] = [
    ("200", JSON, r#"{"callId":"c1","state":"SUCCESS"}"#, yes(State::Success)),
    ("200", JSON, r#"{"callId":"c1","state":"FAILED"}"#, yes(State::Failed)),
    ("202", JSON, r#"{"callId":"c1","state":"PROCESSING"}"#, yes(State::Processing)),
    ("200", JSON, r#"{"state":"RECEIVED"}"#, yes(State::Received)),
    ("200", JSON, r#"{"callId":null,"state":"RECEIVED"}"#, yes(State::Received)),
    ("200", "", r#" {"state":"SUCCESS"} "#, yes(State::Success)),
    ("200", JSON, r#"{"callId":"c1","state":"UNKNOWN"}"#, no(Why::Said)),
    ("404", JSON, "", RawAnswer::NotFound),
    ("404", JSON, r#"{"callId":"c1"}"#, RawAnswer::NotFound),
    ("404", JSON, "half a docum", RawAnswer::NotFound),
    ("404", "application/xml", "<Error>NoSuchKey</Error>", RawAnswer::NotFound),
    ("404", PROBLEM, r#"{"code":"receipt-not-found"}"#, RawAnswer::NotFound),
    ("404", PROBLEM, r#"{"code":"the tool's own"}"#, RawAnswer::NotFound),
    ("404", PROBLEM, r#"{"code":"receipt-not-found","knowsSince":"x"}"#, no(Why::OtherNotFound)),
    ("404", PROBLEM, r#"{"code":"no-route","callId":"c1"}"#, no(Why::OtherNotFound)),
    ("404", "text/html", "not here", no(Why::Html)),
    ("404", "Text/HTML; charset=x", "", no(Why::Html)),
    ("404", "", "\n <!DOCTYPE HTML><p>", no(Why::Html)),
    ("404", JSON, r#"{"callId":"c2"}"#, no(Why::OtherCall)),
    ("404", JSON, r#"{"callId":7}"#, no(Why::OtherCall)),
    ("404", JSON, r#"{"callId":"c1","state":"SUCCESS"}"#, no(Why::Contradiction)),
    ("404", JSON, r#"{"callId":"c1","state":"UNKNOWN"}"#, no(Why::Contradiction)),
    ("404", JSON, r#"{"callId":"c1","state":"NOT_FOUND"}"#, RawAnswer::NotFound),
    ("404", JSON, r#"{"state":"SUCCESS"}"#, RawAnswer::NotFound),
    ("500", JSON, r#"{"state":"SUCCESS"}"#, no(Why::ServerError)),
    ("503", JSON, "", no(Why::ServerError)),
    ("401", JSON, r#"{"state":"FAILED"}"#, no(Why::Denied)),
    ("403", JSON, "", no(Why::Denied)),
    ("429", JSON, "", no(Why::RateLimited)),
    ("410", JSON, "", no(Why::Status)),
    ("400", JSON, r#"{"state":"FAILED"}"#, no(Why::Status)),
    ("301", JSON, r#"{"state":"SUCCESS"}"#, no(Why::Redirect)),
    ("304", JSON, "", no(Why::Redirect)),
    ("204", JSON, "", no(Why::Empty)),
    ("200", JSON, "", no(Why::Empty)),
    ("200", JSON, " \n ", no(Why::Empty)),
    ("200", "text/html", "<html>SUCCESS</html>", no(Why::Html)),
    ("200", JSON, r#"{"callId":"c1","state":"SUCC"#, no(Why::NotJson)),
    ("200", JSON, "SUCCESS", no(Why::NotJson)),
    ("200", JSON, r#"{"state":"WEIRD"}"#, no(Why::UnmappedState)),
    ("200", JSON, r#"{"state":["SUCCESS"]}"#, no(Why::NoState)),
    ("200", JSON, r#"{"callId":"c1"}"#, no(Why::NoState)),
    ("200", JSON, r#"{"callId":"c2","state":"SUCCESS"}"#, no(Why::OtherCall)),
    ("200", JSON, r#"{"state":"SUCCESS","state":"NOT_FOUND"}"#, no(Why::Doubled)),
    ("200", JSON, r#"{"state":"FAILED","state":"SUCCESS"}"#, no(Why::Doubled)),
    ("200", JSON, r#"{"state":"SUCCESS","\u0073tate":"SUCCESS"}"#, no(Why::Doubled)),
    ("200", JSON, r#"{"callId":"c2","callId":"c1","state":"SUCCESS"}"#, no(Why::Doubled)),
    ("200", JSON, r#"{"state":"SUCCESS","note":{"a":1,"a":2}}"#, yes(State::Success)),
    ("404", JSON, r#"{"callId":"c2","callId":"c1"}"#, no(Why::Doubled)),
    ("404", PROBLEM, r#"{"code":"no-route","code":"receipt-not-found"}"#, no(Why::Doubled)),
    ("404", PROBLEM, r#"{"knowsSince":"2026-01-01T00:00:00Z","knowsSince":1}"#, no(Why::Doubled)),
    ("404", JSON, r#"{"note":1,"note":2}"#, RawAnswer::NotFound),
];

/// A carried result's status and body.
type Carried = Option<(u16, &'static [u8])>;

#[tokio::test]
async fn only_a_well_formed_answer_for_the_same_call_is_information() {
    let rig = Rig::new().await;
    for (status, media, body, expected) in ANSWERS {
        let asked = rig.ask(&typed(status, media, body)).await;
        assert_eq!(asked.answer, expected, "{status} {media} {body}");
        // A tool's own UNKNOWN comes with its receipt, for a reversal that names a part of it.
        let is_state = matches!(expected, RawAnswer::State(_)) || expected == no(Why::Said);
        assert_eq!(
            asked.document.is_some(),
            is_state,
            "{status} {media} {body}"
        );
        assert!(asked.result.is_none() && asked.knows_since.is_none());
        let foreign = expected == no(Why::UnmappedState);
        assert_eq!(asked.foreign.is_some(), foreign, "{body}");
    }
}

#[tokio::test]
async fn a_word_nobody_mapped_is_kept_for_the_operator_and_cut() {
    let rig = Rig::new().await;
    let ask = async |word: &str| {
        let body = format!(r#"{{"state":"{word}"}}"#);
        rig.ask(&json("200", &body)).await.foreign
    };
    assert_eq!(ask("WEIRD").await.as_deref(), Some("WEIRD"));
    let long = ask(&"付".repeat(5_000)).await;
    assert_eq!(long.as_deref(), Some("付".repeat(48).as_str()));
}

#[tokio::test]
async fn too_long_too_deep_or_half_an_answer_is_no_information() {
    let rig = Rig::new().await;
    let deep = "[".repeat(100_000);
    let long = format!(
        r#"{{"state":"SUCCESS","pad":"{}"}}"#,
        "x".repeat(10 * 1024 * 1024)
    );
    assert_eq!(
        rig.ask(&json("200", &deep)).await,
        Asked::unknown(Why::TooLarge)
    );
    assert_eq!(
        rig.ask(&json("200", &deep[..50_000])).await,
        Asked::unknown(Why::NotJson)
    );
    assert_eq!(
        rig.ask(&json("200", &long)).await,
        Asked::unknown(Why::TooLarge)
    );
    let half = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        let body = r#"{"callId":"c1","state":"SUCCESS"}"#;
        sock.write(format!(
            "HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n{body}"
        ))
        .await;
        sock.fin().await;
        sock
    };
    let question = rig.question();
    let (asked, _sock) = tokio::join!(rig.endpoint.ask(&rig.core, &question), half);
    assert_eq!(asked, Asked::unknown(Why::Disconnect));
}

#[tokio::test]
async fn foreign_words_and_places_are_mapped() {
    let rig = Rig::with(|_, rule| {
        rule.state = pointer("/data/0/trade_status");
        rule.call_id = pointer("/data/0/out~1no");
        rule.states = Words::new(vec![
            ("TRADE_SUCCESS".into(), State::Success),
            ("7".into(), State::Failed),
            ("true".into(), State::Processing),
        ]);
        rule.not_found = vec![StatusCode::GONE];
    })
    .await;
    let body = |state: &str| format!(r#"{{"data":[{{"out/no":"c1","trade_status":{state}}}]}}"#);
    let table = [
        (
            json("200", &body("\"TRADE_SUCCESS\"")),
            RawAnswer::State(State::Success),
        ),
        (json("200", &body("7")), RawAnswer::State(State::Failed)),
        (
            json("200", &body("true")),
            RawAnswer::State(State::Processing),
        ),
        (
            json("200", &body("\"SUCCESS\"")),
            RawAnswer::Unknown(Why::UnmappedState),
        ),
        (json("410", ""), RawAnswer::NotFound),
        // With another form configured, 404 says nothing.
        (json("404", ""), RawAnswer::Unknown(Why::Status)),
    ];
    for (answer, expected) in table {
        assert_eq!(rig.ask(&answer).await.answer, expected, "{answer}");
    }
}

#[tokio::test]
async fn a_carried_result_is_an_answer_or_none() {
    let rig = Rig::new().await;
    let table: [(&str, Carried); 13] = [
        (
            r#"{"status":201,"body":"done","bodyEncoding":"utf8"}"#,
            Some((201, b"done")),
        ),
        (r#"{"status":201,"body":"done"}"#, Some((201, b"done"))),
        (r#"{"status":"201","body":""}"#, Some((201, b""))),
        (
            r#"{"status":200,"body":"AP8=","bodyEncoding":"base64"}"#,
            Some((200, b"\x00\xff")),
        ),
        (
            r#"{"status":200,"body":{"a":1}}"#,
            Some((200, br#"{"a":1}"#)),
        ),
        (r#"{"status":204,"body":null}"#, Some((204, b""))),
        (r#"{"status":422,"body":"no"}"#, Some((422, b"no"))),
        // Kept without its body, undecodable, or no result at all.
        (r#"{"status":201,"body":null,"bodyBytes":9999999}"#, None),
        (
            r#"{"status":200,"body":"!!","bodyEncoding":"base64"}"#,
            None,
        ),
        (r#"{"status":200,"body":"x","bodyEncoding":"rot13"}"#, None),
        (r#"{"status":99,"body":"x"}"#, None),
        (r#"{"status":70000,"body":"x"}"#, None),
        ("null", None),
    ];
    for (result, expected) in table {
        let body = format!(r#"{{"callId":"c1","state":"SUCCESS","result":{result}}}"#);
        let asked = rig.ask(&json("200", &body)).await;
        assert_eq!(asked.answer, RawAnswer::State(State::Success));
        let carried = asked
            .result
            .as_ref()
            .map(|a| (a.status.as_u16(), &a.body[..]));
        assert_eq!(carried, expected, "{result}");
        assert_eq!(asked.document.as_deref(), Some(body.as_bytes()));
    }
    let body = r#"{"state":"SUCCESS","result":{"status":200,"body":"x","headers":{"X-A":"1",
        "x-b":["2","3"],"Set-Cookie":"s","Date":"d","Connection":"x-a2","Content-Length":"77",
        "bad name":"1","x-bad":"a\nb","x-number":5}}}"#;
    let result = rig.ask(&json("200", body)).await.result.unwrap();
    let mut names: Vec<_> = result
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.clone()))
        .collect();
    names.sort_by_key(|(name, _)| *name);
    assert_eq!(
        names,
        [
            ("x-a", "1".parse().unwrap()),
            ("x-b", "2".parse().unwrap()),
            ("x-b", "3".parse().unwrap())
        ]
    );
}

#[tokio::test]
async fn a_callgate_is_believed_only_in_its_own_words() {
    let rig = Rig::with(|upstream, _| upstream.kind = UpstreamKind::Callgate).await;
    let problem = "application/problem+json";
    let found = r#"{"code":"receipt-not-found","callId":"c1","knowsSince":"2026-11-02T10:00:00Z"}"#;
    let asked = rig.ask(&typed("404", problem, found)).await;
    assert_eq!(asked.answer, RawAnswer::NotFound);
    assert_eq!(asked.knows_since, Some(Wall(1_793_613_600_000)));
    for other in [
        typed("404", problem, r#"{"code":"no-route"}"#),
        typed("404", "application/json", found),
        typed("404", problem, ""),
        json("404", ""),
    ] {
        assert_eq!(
            rig.ask(&other).await,
            Asked::unknown(Why::OtherNotFound),
            "{other}"
        );
    }
    let body = r#"{"callId":"c1","state":"SUCCESS","route":"orders","attempts":2,
        "result":{"status":201,"headers":{"content-type":"application/json"},"body":"{}",
        "bodyEncoding":"utf8"},"deadLetter":null}"#;
    let asked = rig.ask(&json("200", body)).await;
    assert_eq!(asked.answer, RawAnswer::State(State::Success));
    assert_eq!(asked.result.unwrap().status, 201);
}

#[tokio::test]
async fn a_callgate_says_whether_it_still_works_on_a_call() {
    let table = [
        ("UNKNOWN", r#"{"state":"QUEUED"}"#, true),
        ("UNKNOWN", r#"{"state":"RUNNING"}"#, true),
        ("UNKNOWN", r#"{"state":"MANUAL"}"#, false),
        ("UNKNOWN", r#"{"state":"REVERSING"}"#, false),
        ("UNKNOWN", "null", false),
        ("RECEIVED", "null", true),
        ("PROCESSING", "null", true),
        ("SUCCESS", "null", false),
        ("FAILED", r#"{"state":"FAILED"}"#, false),
    ];
    for kind in [UpstreamKind::Callgate, UpstreamKind::Tool] {
        let rig = Rig::with(|upstream, _| upstream.kind = kind).await;
        for (state, letter, worked_on) in table {
            let body = format!(r#"{{"callId":"c1","state":"{state}","deadLetter":{letter}}}"#);
            let asked = rig.ask(&json("200", &body)).await;
            let expected = worked_on && kind == UpstreamKind::Callgate;
            assert_eq!(asked.worked_on, expected, "{kind:?} {body}");
        }
    }
}
