//! Questions against a scripted endpoint (C36): only a well-formed answer for the same id counts.

use super::*;
use crate::clock::Clock;
use crate::config::route::{Credentials, ResultPointers, Words};
use crate::config::template::JsonPointer;
use crate::upstream::tests::peer::{self, Peer};

fn pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).unwrap()
}

/// The gateway's own receipt format at `/receipts/{call_id}`.
fn rule() -> ReceiptRule {
    ReceiptRule {
        elsewhere: None,
        path: Template::parse("/receipts/{call_id}").unwrap(),
        method: Method::GET,
        body: None,
        state: pointer("/state"),
        call_id: pointer("/callId"),
        states: Words::own(),
        not_found: vec![StatusCode::NOT_FOUND],
        result: ResultPointers {
            status: pointer("/result/status"),
            headers: pointer("/result/headers"),
            body: pointer("/result/body"),
            encoding: pointer("/result/bodyEncoding"),
        },
        max_body: 64 * 1024,
        credentials: Credentials::Forward,
    }
}

static FIELD: HeaderName = headers::X_CALL_ID;

struct Rig {
    core: Core,
    endpoint: Arc<ReceiptEndpoint>,
    peer: Peer,
    id: CallId,
}

impl Rig {
    async fn new() -> Self {
        Self::with(|_, _| ()).await
    }

    async fn with(change: impl FnOnce(&mut Upstream, &mut ReceiptRule)) -> Self {
        let peer = Peer::bind().await;
        let (mut upstream, mut rule) = (peer::upstream(&peer.endpoint()), rule());
        change(&mut upstream, &mut rule);
        Self {
            core: Core::start(0, Clock::start()),
            endpoint: ReceiptEndpoint::new(&upstream, &rule, 1).unwrap(),
            peer,
            id: CallId::parse(b"c1").unwrap(),
        }
    }

    fn question(&self) -> Question<'_> {
        Question {
            field: &FIELD,
            call_id: &self.id,
            key: None,
            traceparent: None,
            credentials: None,
            connect: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
        }
    }

    async fn ask(&self, answer: &str) -> Asked {
        self.ask_about(&self.question(), answer).await.0
    }

    async fn ask_about(&self, question: &Question<'_>, answer: &str) -> (Asked, String, Vec<u8>) {
        let script = async {
            let mut sock = self.peer.accept().await;
            let request = sock.request().await;
            // A question that was given up leaves nobody to hear all of its answer.
            sock.write_while_open(answer.as_bytes()).await;
            (request, sock)
        };
        let (asked, ((head, body), _sock)) =
            tokio::join!(self.endpoint.ask(&self.core, question), script);
        (asked, head, body)
    }
}

fn json(status: &str, body: &str) -> String {
    typed(status, "application/json", body)
}

fn typed(status: &str, media: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: {media}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn only_a_well_formed_answer_for_the_same_call_is_information() {
    let rig = Rig::new().await;
    let said = |state| RawAnswer::State(state);
    let none = RawAnswer::Unknown;
    let deep = "[".repeat(100_000);
    let big = format!(
        "{{\"state\":\"SUCCESS\",\"pad\":\"{}\"}}",
        "x".repeat(100_000)
    );
    let problem = "application/problem+json";
    let unreadable = r#"{"code":"receipt-not-found","knowsSince":"yesterday"}"#;
    let not_ours = r#"{"code":"no-route","callId":"c1"}"#;
    let table: [(String, RawAnswer); 41] = [
        (
            json("200", r#"{"callId":"c1","state":"SUCCESS"}"#),
            said(State::Success),
        ),
        (
            json("200", r#"{"callId":"c1","state":"FAILED"}"#),
            said(State::Failed),
        ),
        (
            json("202", r#"{"callId":"c1","state":"PROCESSING"}"#),
            said(State::Processing),
        ),
        (
            json("200", r#"{"state":"RECEIVED"}"#),
            said(State::Received),
        ),
        (
            json("200", r#"{"callId":null,"state":"RECEIVED"}"#),
            said(State::Received),
        ),
        (
            typed("200", "", r#" {"state":"SUCCESS"} "#),
            said(State::Success),
        ),
        (
            json("200", r#"{"callId":"c1","state":"UNKNOWN"}"#),
            none(Why::Said),
        ),
        (json("404", ""), RawAnswer::NotFound),
        (json("404", r#"{"callId":"c1"}"#), RawAnswer::NotFound),
        (json("404", "half a docum"), RawAnswer::NotFound),
        (
            typed("404", "application/xml", "<Error>NoSuchKey</Error>"),
            RawAnswer::NotFound,
        ),
        (
            typed("404", problem, r#"{"code":"receipt-not-found"}"#),
            RawAnswer::NotFound,
        ),
        (
            typed("404", problem, r#"{"code":"tool's own"}"#),
            RawAnswer::NotFound,
        ),
        (typed("404", problem, unreadable), none(Why::OtherNotFound)),
        (typed("404", problem, not_ours), none(Why::OtherNotFound)),
        (typed("404", "text/html", "not here"), none(Why::Html)),
        (typed("404", "Text/HTML; charset=x", ""), none(Why::Html)),
        (typed("404", "", "\n <!DOCTYPE HTML><p>"), none(Why::Html)),
        (json("404", r#"{"callId":"c2"}"#), none(Why::OtherCall)),
        (json("404", r#"{"callId":7}"#), none(Why::OtherCall)),
        (
            json("500", r#"{"state":"SUCCESS"}"#),
            none(Why::ServerError),
        ),
        (json("503", ""), none(Why::ServerError)),
        (json("401", r#"{"state":"FAILED"}"#), none(Why::Denied)),
        (json("403", ""), none(Why::Denied)),
        (json("429", ""), none(Why::RateLimited)),
        (json("410", ""), none(Why::Status)),
        (json("400", r#"{"state":"FAILED"}"#), none(Why::Status)),
        (json("301", r#"{"state":"SUCCESS"}"#), none(Why::Redirect)),
        (json("304", ""), none(Why::Redirect)),
        (json("204", ""), none(Why::Empty)),
        (json("200", ""), none(Why::Empty)),
        (json("200", " \n "), none(Why::Empty)),
        (
            typed("200", "text/html", "<html>SUCCESS</html>"),
            none(Why::Html),
        ),
        (
            json("200", r#"{"callId":"c1","state":"SUCC"#),
            none(Why::NotJson),
        ),
        (json("200", "SUCCESS"), none(Why::NotJson)),
        (json("200", &deep), none(Why::TooLarge)),
        (json("200", &deep[..50_000]), none(Why::NotJson)),
        (json("200", &big), none(Why::TooLarge)),
        (
            json("200", r#"{"state":"WEIRD"}"#),
            none(Why::UnmappedState),
        ),
        (json("200", r#"{"state":["SUCCESS"]}"#), none(Why::NoState)),
        (
            json("200", r#"{"callId":"c2","state":"SUCCESS"}"#),
            none(Why::OtherCall),
        ),
    ];
    for (answer, expected) in table {
        let asked = rig.ask(&answer).await;
        assert_eq!(
            asked.answer,
            expected,
            "{}",
            &answer[..answer.len().min(300)]
        );
        let is_state = matches!(expected, RawAnswer::State(_));
        assert_eq!(asked.document.is_some(), is_state);
        assert!(asked.result.is_none() && asked.knows_since.is_none());
    }
}

#[tokio::test]
async fn silence_resets_and_refusals_are_no_information() {
    let rig = Rig::new().await;
    let mut question = rig.question();
    question.timeout = Duration::from_millis(80);
    // Hangs; drips for longer than the timeout; resets; is not there at all.
    let hang = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.ended_by_reset().await
    };
    let (asked, reset) = tokio::join!(rig.endpoint.ask(&rig.core, &question), hang);
    assert_eq!((asked, reset), (Asked::unknown(Why::Timeout), true));
    let drip = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        let answer = json("200", r#"{"callId":"c1","state":"SUCCESS"}"#);
        for byte in answer.as_bytes() {
            if !sock.write_while_open(&[*byte]).await {
                return true;
            }
            crate::clock::sleep(Duration::from_millis(5)).await;
        }
        false
    };
    let (asked, given_up) = tokio::join!(rig.endpoint.ask(&rig.core, &question), drip);
    assert_eq!((asked, given_up), (Asked::unknown(Why::Timeout), true));
    let rst = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.rst();
    };
    let question = rig.question();
    let (asked, ()) = tokio::join!(rig.endpoint.ask(&rig.core, &question), rst);
    assert_eq!(asked, Asked::unknown(Why::Disconnect));
    let Rig {
        core,
        endpoint,
        peer,
        id,
    } = &rig;
    let nobody = peer::nobody().await;
    let endpoint_gone =
        ReceiptEndpoint::new(&peer::upstream(&peer::endpoint(nobody)), &rule(), 1).unwrap();
    let question = Question {
        call_id: id,
        ..rig.question()
    };
    let asked = endpoint_gone.ask(core, &question).await;
    assert_eq!(asked, Asked::unknown(Why::Unreachable));
    assert_ne!(endpoint.destination().authority(), nobody.to_string());
    assert_eq!(endpoint.destination().authority(), peer.addr().to_string());
}

#[tokio::test]
async fn a_question_names_the_call_and_carries_nothing_it_should_not() {
    let rig = Rig::with(|upstream, _| {
        upstream.endpoint.base_path = "/v1".into();
        upstream
            .headers
            .insert("x-tool-key", "s3cret".parse().unwrap());
    })
    .await;
    let id = CallId::parse(b"a/b?c#d%2e \"\\&".split(|b| *b == b' ').next().unwrap()).unwrap();
    let trace = HeaderValue::from_static("00-a-b-01");
    let credentials =
        HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer me".parse().unwrap())]);
    let question = Question {
        call_id: &id,
        traceparent: Some(&trace),
        credentials: Some(&credentials),
        ..rig.question()
    };
    let answer = json("200", r#"{"callId":"a/b?c#d%2e","state":"SUCCESS"}"#);
    let (asked, head, _) = rig.ask_about(&question, &answer).await;
    assert_eq!(asked.answer, RawAnswer::State(State::Success));
    assert!(
        head.starts_with("GET /v1/receipts/a%2Fb%3Fc%23d%252e HTTP/1.1\r\n"),
        "{head}"
    );
    let mut names: Vec<_> = head
        .lines()
        .skip(1)
        .filter_map(|l| l.split(':').next())
        .collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    let expected = [
        "accept",
        "authorization",
        "host",
        "traceparent",
        "x-call-id",
        "x-tool-key",
    ];
    assert_eq!(names, expected);
    assert!(head.contains("x-call-id: a/b?c#d%2e\r\n"));
}

#[tokio::test]
async fn a_posted_question_escapes_the_id_for_its_kind_of_body() {
    let id = CallId::parse(br#"a"b\c&d"#).unwrap();
    let table = [
        (
            r#"{"id":"{call_id}","k":"{idempotency_key}"}"#,
            "application/json",
            r#"{"id":"a\"b\\c&d","k":"k&1"}"#,
        ),
        (
            "id={call_id}&k={idempotency_key}",
            "application/x-www-form-urlencoded",
            "id=a%22b%5Cc%26d&k=k%261",
        ),
    ];
    for (template, media, expected) in table {
        let rig = Rig::with(|_, rule| {
            rule.method = Method::POST;
            rule.path = Template::parse("/query").unwrap();
            rule.body = Some(Template::parse(template).unwrap());
        })
        .await;
        let question = Question {
            call_id: &id,
            key: Some("k&1"),
            ..rig.question()
        };
        let answer = json("200", r#"{"state":"SUCCESS"}"#);
        let (asked, head, body) = rig.ask_about(&question, &answer).await;
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert!(head.starts_with("POST /query HTTP/1.1\r\n"));
        assert!(
            head.contains(&format!("content-type: {media}\r\n")),
            "{head}"
        );
        // Asked by key, only an answer that names the call is about it.
        assert_eq!(asked, Asked::unknown(Why::NoCallId));
        let question = Question {
            key: None,
            ..question
        };
        let asked = rig.endpoint.ask(&rig.core, &question).await;
        assert_eq!(asked, Asked::unknown(Why::NoQuestion));
    }
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
    let table: [(&str, Option<(u16, &[u8])>); 13] = [
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
async fn questions_share_a_connection_and_never_follow_a_redirect() {
    let rig = Rig::new().await;
    let question = rig.question();
    let script = async {
        let mut sock = rig.peer.accept().await;
        for _ in 0..3 {
            sock.request().await;
            sock.write("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
        sock.request().await;
        sock.write("HTTP/1.1 302 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
            .await;
        sock
    };
    let asks = async {
        for _ in 0..3 {
            let asked = rig.endpoint.ask(&rig.core, &question).await;
            assert_eq!(asked.answer, RawAnswer::NotFound);
        }
        let asked = rig.endpoint.ask(&rig.core, &question).await;
        assert_eq!(asked, Asked::unknown(Why::Redirect));
    };
    let ((), mut sock) = tokio::join!(asks, script);
    sock.fin().await;
    assert_eq!(sock.try_request().await, None);
}

#[tokio::test]
async fn an_endpoint_may_stand_elsewhere() {
    let elsewhere = Peer::bind().await;
    let mut other = elsewhere.endpoint();
    other.base_path = "/status".into();
    let mut rig = Rig::with(|_, rule| rule.elsewhere = Some(other)).await;
    rig.peer = elsewhere;
    let (asked, head, _) = rig.ask_about(&rig.question(), &json("404", "")).await;
    assert_eq!(asked.answer, RawAnswer::NotFound);
    assert!(
        head.starts_with("GET /status/receipts/c1 HTTP/1.1\r\n"),
        "{head}"
    );
}
