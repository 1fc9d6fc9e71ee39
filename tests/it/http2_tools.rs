//! Tools that speak HTTP/2: the same calls, receipts and promises over shared connections.

use crate::fixture::{Call, Came, Config, Deed, Gateway, Tool2};
use h2::Reason;

/// A route of calls with effects before an HTTP/2 tool.
fn before(tool: &Tool2) -> Gateway {
    let config = Config::for_address(tool.address).route("upstream/protocol", "http2");
    Gateway::start(&config)
}

fn receipt(id: &str, state: &str) -> Deed {
    let text = format!(r#"{{"callId":"{id}","state":"{state}"}}"#);
    Deed::Answer(200, text.leak())
}

fn is_receipt(came: &Came) -> bool {
    came.path.starts_with("/receipts/")
}

#[test]
fn a_call_and_its_repeat_go_over_one_shared_connection() {
    let tool = Tool2::start(|_, _| Deed::Answer(201, "made"));
    let gateway = before(&tool);
    let calls = ["one", "two", "three", "one"];
    let told: Vec<_> = calls
        .iter()
        .map(|id| {
            let answer = gateway.call(&Call::with_id(id));
            (answer.status, answer.outcome())
        })
        .collect();
    let told: Vec<_> = told.iter().map(|(status, how)| (*status, &**how)).collect();
    assert_eq!(
        told,
        [
            (201, "answered"),
            (201, "answered"),
            (201, "answered"),
            (201, "replayed")
        ]
    );
    let came = tool.of("/tool");
    assert_eq!((came.len(), tool.connections()), (3, 1));
    assert_eq!(came[0].method, "POST");
    assert_eq!(came[0].headers["x-call-id"], "one");
    assert_eq!(came[0].headers["x-call-attempt"], "1");
    assert!(came[0].headers.get("host").is_none());
}

#[test]
fn a_stream_that_breaks_after_the_work_is_settled_by_the_receipt() {
    let tool = Tool2::start(|came, _| match is_receipt(came) {
        true => receipt("broken", "SUCCESS"),
        false => Deed::Reset(Reason::INTERNAL_ERROR),
    });
    let gateway = before(&tool);
    let answer = gateway.call(&Call::with_id("broken"));
    assert_eq!((answer.status, &*answer.outcome()), (200, "receipt"));
    assert_eq!(tool.of("/tool").len(), 1);
}

#[test]
fn a_refused_stream_is_resent_without_a_question() {
    let tool = Tool2::start(|came, before| match (is_receipt(came), before) {
        (true, _) => Deed::Answer(500, "nobody should ask"),
        (false, 0) => Deed::Reset(Reason::REFUSED_STREAM),
        (false, _) => Deed::Answer(201, "made"),
    });
    let gateway = before(&tool);
    let answer = gateway.call(&Call::with_id("refused"));
    assert_eq!((answer.status, answer.attempts()), (201, 2));
    let came = tool.of("/tool");
    assert_eq!(came[1].headers["x-call-retry-cause"], "connect");
    assert_eq!(tool.of("/receipts/refused").len(), 0);
}

#[test]
fn a_resend_waits_for_the_reset_of_the_first_and_takes_another_connection() {
    let tool = Tool2::start(|came, before| match (is_receipt(came), before) {
        (true, _) => Deed::Answer(404, "{}"),
        (false, 0) => Deed::Hang,
        (false, _) => Deed::Answer(201, "made"),
    });
    let gateway = before(&tool);
    let answer = gateway.call(&Call::with_id("slow"));
    assert_eq!((answer.status, answer.attempts()), (201, 2));
    // The first was reset, on the wire and before the second came.
    let came = tool.wait("/tool", |came| came.len() == 2 && came[0].reset.is_some());
    assert_eq!(came[0].reset, Some(Reason::CANCEL));
    assert_ne!(came[0].connection, came[1].connection);
    let asked = tool.of("/receipts/slow");
    assert!(asked.len() >= 2, "{asked:?}");
    assert!(asked.last().is_some_and(|last| last.at <= came[1].at));
}

#[test]
fn a_late_answer_over_http2_still_counts() {
    let tool = Tool2::start(|came, _| match is_receipt(came) {
        true => receipt("late", "PROCESSING"),
        false => Deed::Hang,
    });
    let config = Config::for_address(tool.address)
        .route("upstream/protocol", "http2")
        .set("defaults/timeouts/total", "1s");
    let gateway = Gateway::start(&config);
    let answer = gateway.call(&Call::with_id("late"));
    answer.problem(504, "unresolved");
    // Nothing was sent a second time, and the exchange stayed open until its late time was over.
    let came = tool.wait("/tool", |came| came[0].reset.is_some());
    assert_eq!((came.len(), came[0].reset), (1, Some(Reason::CANCEL)));
}

#[test]
fn a_tool_that_does_not_speak_http2_was_sent_nothing() {
    let tool = crate::fixture::Tool::start(crate::fixture::Script::new());
    let config = Config::standard(&tool)
        .route("upstream/protocol", "http2")
        .set("defaults/retry/max_retries", 0);
    let gateway = Gateway::start(&config);
    let answer = gateway.call(&Call::with_id("spoken"));
    let problem = answer.problem(502, "tool-unreachable");
    assert_eq!(
        (&problem["sent"], &problem["repeat"]),
        (&"no".into(), &"safe".into())
    );
    // It took the preface for requests; none of them was the call.
    assert!(tool.sends("spoken").is_empty());
}
