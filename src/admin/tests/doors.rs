//! Every door of the operator's listener, refused in every way that has nothing to do with what it
//! is about: the code says what was wrong, and the status is the one of its kind.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header;
use http_body::Frame;

use super::*;

/// Addresses of the document with their methods, filled in.
fn doors() -> BTreeMap<String, Vec<String>> {
    let document: Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let filled = |path: &str| path.replace("{id}", "1").replace("{name}", "n");
    let methods = |of: &Value| of.as_object().unwrap().keys().cloned().collect();
    paths
        .map(|(path, of)| (filled(path), methods(of)))
        .collect()
}

/// The addresses that take a JSON body.
fn with_json() -> Vec<String> {
    let document: Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let takes = |of: &&Value| {
        let body = "/post/requestBody/content/application~1json";
        of.pointer(body).is_some()
    };
    let paths = paths.filter(|(_, of)| takes(of)).map(|(path, _)| path);
    paths.map(|path| path.replace("{id}", "1")).collect()
}

fn post(target: &str, kind: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(target).header(header::CONTENT_TYPE, kind);
    request.body(body.into()).unwrap()
}

/// So many pieces of blanks, of half a limit each; their length is not told.
struct Pieces(usize);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        let piece = Bytes::from(vec![b' '; BODY_BYTES_MAX / 2]);
        Poll::Ready(left.map(|_| Ok(Frame::data(piece))))
    }
}

#[tokio::test]
async fn a_method_that_an_address_does_not_take_is_no_route() {
    let admin = admin(Shelf::default(), None);
    let doors = doors();
    assert!(doors.len() > 20, "{doors:?}");
    for (path, methods) in doors {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "BREW"] {
            if methods.iter().any(|known| known.to_uppercase() == method) {
                continue;
            }
            let request = Request::builder().method(method).uri(&path);
            let request = request.body(Body::empty()).unwrap();
            let got = ask(&admin, request).await;
            let detail = got.problem(405, Code::NoRoute);
            assert!(detail.contains("another method"), "{method} {path}");
            let allowed = got.allow.expect("Allow stands beside 405");
            for known in &methods {
                let known = known.to_uppercase();
                assert!(allowed.contains(&known), "{method} {path}: {allowed}");
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_used_is_told_with_the_reason() {
    let admin = admin(Shelf::default(), None);
    let doors = with_json();
    assert!(doors.len() >= 9, "{doors:?}");
    let json = "application/json";
    for door in doors {
        for (kind, body, status, reason) in [
            ("text/plain", "{}", 415, "not-json"),
            (json, "{\"", 400, "unreadable"),
            (json, "", 400, "unreadable"),
            (json, "[]", 422, "wrong-members"),
            (json, r#"{"nobody":"knows"}"#, 422, "wrong-members"),
        ] {
            let got = ask(&admin, post(&door, kind, body)).await;
            let detail = got.problem(status, Code::BadRequest);
            assert!(detail.contains("send a JSON object"), "{door}: {detail}");
            assert_eq!(got.json()["reason"], reason, "{door} {body}");
        }
        // Without a length the limit is met while it is read.
        let got = ask(&admin, post(&door, json, Body::new(Pieces(3)))).await;
        got.problem(413, Code::BodyTooLarge);
    }
}

/// A body of which nothing ever comes.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_told_as_slow() {
    let admin = admin(Shelf::default(), None);
    for target in with_json() {
        let request = post(&target, "application/json", Body::new(Never));
        let answer = ask(&admin, request).await;
        let detail = answer.problem(408, Code::RequestTimeout);
        assert!(detail.contains("within 10 s"), "{target}: {detail}");
    }
    let question = Request::get("/api/v1/dead-letters").body(Body::new(Never));
    assert_eq!(ask(&admin, question.unwrap()).await.status, 200);
}
