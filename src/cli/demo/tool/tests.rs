//! The tool over real sockets does each fault as told.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::books::Item;
use super::super::client::{Answer, Client, Failure, get};
use super::super::parcel::tracking_no;
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn calm() -> Tool {
    Tool::open(Plan::new(1, 0)).expect("a free port")
}

fn call(id: &str, number: &str, scene: &str) -> Request<Bytes> {
    let body = json!({"trackingNo": number, "date": "2026-11-30", "scene": scene});
    Request::post("/track")
        .header("x-call-id", id)
        .body(Bytes::from(body.to_string()))
        .expect("well-formed")
}

async fn send(tool: &Tool, scene: &str) -> Result<Answer, Failure> {
    let number = tracking_no(1, false);
    Client::new(tool.address())
        .ask(call("id", &number, scene), PATIENCE)
        .await
}

async fn receipt(tool: &Tool, id: &str) -> (u16, Value) {
    let path = format!("/receipts/{id}");
    let answer = Client::new(tool.address())
        .ask(get(&path), PATIENCE)
        .await
        .expect("a receipt");
    (
        answer.status.as_u16(),
        serde_json::from_slice(&answer.body).expect("JSON"),
    )
}

fn effects(tool: &Tool) -> u32 {
    tool.books().item(&tracking_no(1, false)).effects
}

#[tokio::test]
async fn an_honest_call_is_one_effect_with_a_receipt() {
    let tool = calm();
    assert_eq!(receipt(&tool, "id").await.0, 404);
    let answer = send(&tool, "delivery").await.expect("an answer");
    assert_eq!(answer.status, StatusCode::OK);
    let (status, document) = receipt(&tool, "id").await;
    assert_eq!((status, &document["state"]), (200, &json!("SUCCESS")));
    assert_eq!(
        document["result"]["body"].as_str().map(str::as_bytes),
        Some(&answer.body[..])
    );
    assert_eq!(effects(&tool), 1);
}

#[tokio::test]
async fn a_second_send_is_a_second_effect() {
    let tool = calm();
    for _ in 0..2 {
        assert_eq!(
            send(&tool, "delivery").await.expect("an answer").status,
            StatusCode::OK
        );
    }
    assert_eq!(effects(&tool), 2, "this tool does not deduplicate");
}

#[tokio::test]
async fn errors_come_before_or_after_the_work() {
    for (scene, done) in [("error-before", 0), ("error-after", 1)] {
        let tool = calm();
        let answer = send(&tool, scene).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{scene}");
        assert_eq!(effects(&tool), done, "{scene}");
        assert_eq!(
            receipt(&tool, "id").await.0,
            if done == 1 { 200 } else { 404 },
            "{scene}"
        );
    }
}

#[tokio::test]
async fn a_rate_limit_names_its_wait_and_does_nothing() {
    let tool = calm();
    let answer = send(&tool, "rate-limit").await.expect("an answer");
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(effects(&tool), 0);
}

/// What a caller below HTTP sees: the end of the stream, or the error that a reset is.
async fn end_of_stream(tool: &Tool, scene: &str) -> std::io::Result<usize> {
    let number = tracking_no(1, false);
    let body = json!({"trackingNo": number, "date": "d", "scene": scene}).to_string();
    let request = format!(
        "POST /track HTTP/1.1\r\nhost: t\r\nx-call-id: id\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(tool.address())
        .await
        .expect("a listener");
    stream.write_all(request.as_bytes()).await.expect("room");
    stream.read(&mut [0; 64]).await
}

#[tokio::test]
async fn cuts_are_resets_or_closes_before_or_after_the_work() {
    for (scene, reset, done) in [
        ("reset-before", true, 0),
        ("reset-after", true, 1),
        ("close-before", false, 0),
        ("close-after", false, 1),
    ] {
        let tool = calm();
        match end_of_stream(&tool, scene).await {
            Ok(read) => assert_eq!((read, reset), (0, false), "{scene}"),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{scene}");
                assert!(reset, "{scene}");
            }
        }
        assert_eq!(effects(&tool), done, "{scene}");
    }
}

#[tokio::test]
async fn a_late_answer_has_its_receipt_at_once_and_a_slow_one_is_processing() {
    for (scene, early) in [("answer-late", "SUCCESS"), ("work-slowly", "PROCESSING")] {
        let tool = calm();
        let mut client = Client::new(tool.address());
        let number = tracking_no(1, false);
        let given_up = client
            .ask(call("id", &number, scene), Duration::from_millis(100))
            .await;
        assert_eq!(
            given_up.expect_err("too late"),
            Failure::TimedOut,
            "{scene}"
        );
        assert_eq!(receipt(&tool, "id").await.1["state"], early, "{scene}");
        assert!(tool.quiet(PATIENCE).await);
        assert_eq!(
            effects(&tool),
            1,
            "{scene}: the work goes on after the caller has gone"
        );
        assert_eq!(receipt(&tool, "id").await.1["state"], "SUCCESS", "{scene}");
    }
}

#[tokio::test]
async fn a_mistyped_number_is_refused_and_the_receipt_says_so() {
    let tool = calm();
    let number = tracking_no(1, true);
    let answer = Client::new(tool.address())
        .ask(call("id", &number, "transit"), PATIENCE)
        .await
        .expect("one");
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let (_, document) = receipt(&tool, "id").await;
    assert_eq!(
        (&document["state"], &document["result"]["status"]),
        (&json!("FAILED"), &json!(422))
    );
    assert_eq!(
        tool.books().item(&number),
        Item {
            arrivals: 1,
            effects: 0,
            refusals: 1
        }
    );
}

#[tokio::test]
async fn a_refusing_tool_closes_its_door_and_comes_back_on_the_same_port() {
    let tool = calm();
    let mut client = Client::new(tool.address());
    client.ask(get("/books"), PATIENCE).await.expect("open");
    tool.desk.health.send_replace(Health::Refusing);
    // The door closes on its own task; until then a connect may still succeed and be closed.
    while TcpStream::connect(tool.address()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(
        client.ask(get("/books"), PATIENCE).await.is_err(),
        "idle connections end too"
    );
    tool.desk.health.send_replace(Health::Up);
    while TcpStream::connect(tool.address()).await.is_err() {
        tokio::task::yield_now().await;
    }
    client
        .ask(get("/books"), PATIENCE)
        .await
        .expect("open again");
}

#[tokio::test]
async fn a_dead_tool_hangs_and_does_when_it_wakes_what_it_had_read() {
    let tool = calm();
    tool.desk.health.send_replace(Health::Dead);
    let number = tracking_no(1, false);
    let mut client = Client::new(tool.address());
    let short = Duration::from_millis(100);
    let call = client.ask(call("id", &number, "transit"), short).await;
    assert_eq!(call.expect_err("dead"), Failure::TimedOut);
    let question = client.ask(get("/receipts/id"), short).await;
    assert_eq!(
        question.expect_err("receipts hang as well"),
        Failure::TimedOut
    );
    assert_eq!(effects(&tool), 0);
    tool.desk.health.send_replace(Health::Up);
    assert!(tool.quiet(PATIENCE).await);
    assert_eq!(effects(&tool), 1);
}

#[tokio::test]
async fn what_is_not_a_call_is_told_so() {
    let tool = calm();
    let mut client = Client::new(tool.address());
    let anonymous = Request::post("/track")
        .body(Bytes::new())
        .expect("well-formed");
    let garbage = Request::post("/track")
        .header("x-call-id", "id")
        .body(Bytes::from_static(b"{\"trackingNo\":"))
        .expect("well-formed");
    for (request, status) in [(anonymous, 400), (garbage, 400), (get("/nowhere"), 404)] {
        assert_eq!(
            client
                .ask(request, PATIENCE)
                .await
                .expect("told")
                .status
                .as_u16(),
            status
        );
    }
}

#[tokio::test]
async fn the_plan_opens_an_outage_at_its_place_in_the_batch() {
    let tool = Tool::open(Plan::new(1, 3)).expect("a free port");
    let mut health = tool.desk.health.subscribe();
    let number = tracking_no(0, false);
    let mut client = Client::new(tool.address());
    let first = client.ask(call("id", &number, "transit"), PATIENCE);
    let watched = async {
        health
            .wait_for(|health| *health == Health::Refusing)
            .await
            .map(|_| ())
            .expect("refusing");
        health
            .wait_for(|health| *health == Health::Up)
            .await
            .map(|_| ())
            .expect("up again");
    };
    let (answer, ()) = tokio::join!(first, watched);
    assert_eq!(
        answer.expect("what was in hand is finished").status,
        StatusCode::OK
    );
}
