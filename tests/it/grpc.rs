//! gRPC through a route without effects: HTTP/2 on both sides, streams and trailers both ways.

use crate::fixture::{Call, Config, Deed, Gateway, PATIENCE, Tool2};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use std::future::Future;

const ECHO: &str = "/pkg.Svc/Echo";

fn before(tool: &Tool2, effects: &str) -> Gateway {
    let config = Config::for_address(tool.address)
        .route("upstream/protocol", "http2")
        .route("effects", effects);
    Gateway::start(&config)
}

fn over_h2<T, F: Future<Output = T>>(
    gateway: &Gateway,
    caller: impl FnOnce(SendRequest<Bytes>) -> F,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let socket = tokio::net::TcpStream::connect(gateway.listen).await;
        let (sender, connection) = h2::client::handshake(socket.expect("a connection"))
            .await
            .expect("HTTP/2 is spoken");
        let driver = tokio::spawn(connection);
        let sender = sender.ready().await.expect("a stream");
        let result = tokio::time::timeout(PATIENCE, caller(sender)).await;
        driver.abort();
        result.expect("an answer in time")
    })
}

fn asked() -> Request<()> {
    Request::post(format!("http://tools.test{ECHO}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .header("grpc-timeout", "3S")
        .header("x-call-id", "grpc-1")
        .body(())
        .expect("a request")
}

/// A length-prefixed message.
fn message(text: &str) -> Bytes {
    let length = u32::try_from(text.len()).expect("short");
    let mut bytes = vec![0];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Bytes::from(bytes)
}

async fn rest(response: Response<h2::RecvStream>) -> (HeaderMap, Vec<u8>, Option<HeaderMap>) {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("a whole body");
        body.flow_control()
            .release_capacity(data.len())
            .expect("a window");
        bytes.extend_from_slice(&data);
    }
    (head.headers, bytes, body.trailers().await.expect("an end"))
}

#[test]
fn a_bidirectional_stream_flows_message_by_message_with_its_metadata() {
    let tool = Tool2::start(|_, _| Deed::Echo(&[("grpc-status", "0"), ("grpc-message", "fine")]));
    let gateway = before(&tool, "none");
    let (headers, trailers) = over_h2(&gateway, async |mut sender| {
        let (response, mut send) = sender.send_request(asked(), false).expect("a stream");
        let mut response = std::pin::pin!(response);
        send.send_data(message("one"), false).expect("a message");
        let (head, mut body) = response.as_mut().await.expect("a head").into_parts();
        // The first is back before the second is sent.
        assert_eq!(
            body.data().await.expect("a message").expect("whole"),
            message("one")
        );
        send.send_data(message("two"), false).expect("a message");
        assert_eq!(
            body.data().await.expect("a message").expect("whole"),
            message("two")
        );
        let trailers = HeaderMap::from_iter([("x-sum".parse().expect("a name"), 2.into())]);
        send.send_trailers(trailers).expect("trailers");
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.expect("an end").expect("trailers");
        (head.headers, trailers)
    });
    assert_eq!(headers["x-call-id"], "grpc-1");
    assert_eq!(headers["x-call-outcome"], "answered");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["grpc-message"], "fine");
    let came = &tool.wait(ECHO, |came| came.len() == 1 && came[0].trailers.is_some())[0];
    for (name, value) in [
        ("x-call-id", "grpc-1"),
        ("te", "trailers"),
        ("grpc-timeout", "3S"),
        ("content-type", "application/grpc+proto"),
    ] {
        assert_eq!(came.headers[name], value);
    }
    assert!(came.headers.get("content-length").is_none());
    assert_eq!(came.trailers.as_ref().expect("trailers")["x-sum"], "2");
}

#[test]
fn a_failure_without_a_message_keeps_its_trailers() {
    let tool = Tool2::start(|_, _| Deed::Trailers(&[("grpc-status", "14")]));
    let gateway = before(&tool, "none");
    let (_, body, trailers) = over_h2(&gateway, async |mut sender| {
        let (response, mut send) = sender.send_request(asked(), false).expect("a stream");
        send.send_data(message("one"), true).expect("a message");
        rest(response.await.expect("a head")).await
    });
    assert!(body.is_empty());
    assert_eq!(trailers.expect("trailers")["grpc-status"], "14");
}

#[test]
fn a_caller_that_cancels_a_stream_cancels_it_at_the_tool() {
    let tool = Tool2::start(|_, _| Deed::Hang);
    let gateway = before(&tool, "none");
    over_h2(&gateway, async |mut sender| {
        let (response, mut send) = sender.send_request(asked(), true).expect("a stream");
        while tool.of(ECHO).is_empty() {
            tokio::task::yield_now().await;
            tokio::time::sleep(crate::fixture::ms(5)).await;
        }
        send.send_reset(h2::Reason::CANCEL);
        let error = response.await.expect_err("it was reset");
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        let came = tool.wait(ECHO, |came| came[0].reset.is_some());
        assert_eq!(came[0].reset, Some(h2::Reason::CANCEL));
    });
}

#[test]
fn grpc_is_no_call_with_effects() {
    let tool = Tool2::start(|_, _| Deed::Hang);
    let gateway = before(&tool, "once");
    let call = Call::post_to(ECHO)
        .field("X-Call-Id", "grpc-2")
        .set("Content-Type", "application/grpc")
        .body("x");
    gateway.call(&call).problem(501, "upgrade-refused");
    assert!(tool.of(ECHO).is_empty());
}
