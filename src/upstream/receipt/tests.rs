//! Questions against a scripted endpoint (C36): only a well-formed answer for the same id counts.

use super::*;
use crate::clock::Clock;
use crate::config::route::{Credentials, ResultPointers, Words};
use crate::config::template::JsonPointer;
use crate::upstream::tests::peer::{self, Peer};

mod reading;

fn pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).unwrap()
}

/// The gateway's own receipt format at `/receipts/{call_id}`.
fn rule() -> ReceiptRule {
    ReceiptRule {
        elsewhere: None,
        at_root: false,
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
    client: ClientName,
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
            client: ClientName::new("billing"),
        }
    }

    fn question(&self) -> Question<'_> {
        Question {
            field: &FIELD,
            call_id: &self.id,
            client: &self.client,
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
        ..
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
        upstream.tenant_header = Some(HeaderName::from_static("x-tenant"));
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
        "x-tenant",
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
