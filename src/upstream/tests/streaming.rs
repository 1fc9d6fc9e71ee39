//! Streamed answers: when, how far, and what is known at their end (C50, rule 10).

use std::pin::Pin;

use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::*;
use crate::upstream::StreamError;

#[tokio::test]
async fn long_and_event_answers_stream_from_the_head_and_others_are_collected() {
    let table = [
        ("Content-Length: 70000", Mode::Auto, true),
        ("Content-Length: 70000", Mode::Stream, true),
        ("Content-Type: text/event-stream", Mode::Auto, true),
        ("Content-Type: application/grpc+proto", Mode::Auto, true),
        ("Content-Length: 10", Mode::Stream, true),
        ("Content-Length: 10", Mode::Pass, true),
        (
            "Content-Type: text/event-stream\r\nContent-Length: 2",
            Mode::Collect,
            false,
        ),
        ("Content-Length: 2", Mode::Auto, false),
    ];
    for (field, mode, streams) in table {
        let rig = Rig::new().await;
        let terms = Terms { mode, ..TERMS };
        let answer = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\nok");
        let (ended, _sock) = rig.exchange_keeping(&answer, terms).await;
        assert_eq!(
            matches!(ended, Ended::Streaming(_)),
            streams,
            "{field} {mode:?}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn a_short_answer_that_is_already_there_is_not_streamed() {
    let rig = Rig::new().await;
    for mode in [Mode::Stream, Mode::Pass] {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (ended, _sock) = rig.exchange_keeping(answer, Terms { mode, ..TERMS }).await;
        assert_eq!(&collected(ended).body[..], b"ok");
    }
    // Passed through, a 5xx streams like anything else.
    let long = format!(
        "HTTP/1.1 500 Oops\r\nContent-Length: 90\r\n\r\n{}",
        "e".repeat(40)
    );
    let terms = Terms {
        mode: Mode::Pass,
        max_kept: 10,
        ..TERMS
    };
    let rig = Rig::new().await;
    let (ended, _sock) = rig.exchange_keeping(&long, terms).await;
    assert_eq!(streaming(ended).status, 500);
}

#[tokio::test]
async fn past_the_limit_head_and_prefix_go_out_and_the_rest_streams() {
    let rig = Rig::new().await;
    let terms = Terms {
        max_kept: 10,
        ..TERMS
    };
    let (go, mut gone) = mpsc::unbounded_channel::<()>();
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n")
            .await;
        sock.write("8\r\n12345678\r\n").await;
        gone.recv().await;
        sock.write("4\r\nrest\r\n0\r\n\r\n").await;
        sock
    };
    let read = async {
        let mut answer = streaming(rig.send(post(b"x"), terms).await);
        let mut prefix = Vec::new();
        while prefix.len() < 16 {
            let frame = answer.body.frame().await.unwrap().unwrap();
            prefix.extend_from_slice(&frame.into_data().unwrap());
        }
        assert_eq!(&prefix[..], b"1234567812345678");
        go.send(()).unwrap();
        let rest = answer.body.collect().await.unwrap().to_bytes();
        assert_eq!(&rest[..], b"rest");
        answer.end.await
    };
    let (report, _sock) = tokio::join!(read, script);
    assert_eq!((report.broken, report.bytes, report.kept), (None, 20, None));
    let sha: [u8; 32] = Sha256::digest(b"1234567812345678rest").into();
    assert_eq!(report.sha256, Some(sha));
    assert_eq!(rig.tool.destination().idle_connections(), 1);
}

#[tokio::test]
async fn a_stream_within_the_limit_is_kept_for_the_record() {
    let rig = Rig::new().await;
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                  Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
    let (ended, _sock) = rig.exchange_keeping(answer, TERMS).await;
    let answer = streaming(ended);
    let all = answer.body.collect().await.unwrap().to_bytes();
    assert_eq!(&all[..], b"onetwo");
    let report = answer.end.await;
    assert_eq!(
        (report.broken, report.kept.as_deref()),
        (None, Some(&b"onetwo"[..]))
    );
}

/// C50, streaming: the head is out, so all that is left is to break off visibly.
#[tokio::test]
async fn a_stream_cut_short_ends_with_an_error_and_says_so() {
    let heads = [
        "Content-Length: 70000\r\n\r\nhalf",
        "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ];
    for head in heads {
        let rig = Rig::new().await;
        let answer = format!("HTTP/1.1 200 OK\r\n{head}");
        let (ended, mut sock) = rig.exchange_keeping(&answer, TERMS).await;
        let StreamAnswer { mut body, end, .. } = streaming(ended);
        let half = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&half[..], b"half");
        sock.fin().await;
        assert!(matches!(
            body.frame().await,
            Some(Err(StreamError::Broken(_)))
        ));
        assert!(body.frame().await.is_none());
        let report = end.await;
        assert_eq!(
            (report.broken, report.bytes),
            (Some(Unclear::Disconnect), 4)
        );
    }
}

#[tokio::test]
async fn a_silent_stream_times_out_and_a_dropped_one_is_reset() {
    let rig = Rig::new().await;
    let terms = Terms {
        idle: Duration::from_millis(60),
        mode: Mode::Stream,
        ..TERMS
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n";
    let (ended, mut sock) = rig.exchange_keeping(head, terms).await;
    let StreamAnswer { mut body, end, .. } = streaming(ended);
    assert!(matches!(body.frame().await, Some(Err(StreamError::Idle))));
    assert_eq!(end.await.broken, Some(Unclear::Timeout));
    assert!(sock.ended_by_reset().await);

    let (ended, mut sock) = rig.exchange_keeping(head, TERMS).await;
    let StreamAnswer { body, end, .. } = streaming(ended);
    drop(body);
    assert_eq!(end.await.broken, Some(Unclear::Disconnect));
    assert!(sock.ended_by_reset().await);
}

#[tokio::test]
async fn a_streams_length_is_announced_when_the_tool_announced_it() {
    use http_body::Body;
    let rig = Rig::new().await;
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\nabc";
    let (ended, _sock) = rig.exchange_keeping(answer, TERMS).await;
    let answer = streaming(ended);
    assert_eq!(answer.headers["content-length"], "70000");
    assert_eq!(answer.body.size_hint().exact(), Some(70_000));
    assert!(!answer.body.is_end_stream());
}

/// A slow reader slows the tool: what was written and not read stays bounded by the buffers.
#[tokio::test]
async fn a_hundred_megabytes_pass_at_the_readers_pace() {
    const PIECE: usize = 1024 * 1024;
    const PIECES: usize = 100;
    let rig = Rig::new().await;
    let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let Rig { core, tool, peer } = rig;
    let tool_task = tokio::spawn(async move {
        let mut sock = peer.accept().await;
        sock.request().await;
        let length = PIECE * PIECES;
        sock.write(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
        let piece = vec![b'p'; PIECE];
        for _ in 0..PIECES {
            sock.write(&piece).await;
            counter.fetch_add(PIECE, std::sync::atomic::Ordering::SeqCst);
        }
        sock
    });
    let terms = Terms {
        mode: Mode::Pass,
        ..TERMS
    };
    let exchange = Exchange::new(&core, tool.destination(), post(b"x"), terms);
    let StreamAnswer { mut body, end, .. } = streaming(exchange.await);
    let (mut read, mut ahead_max) = (0, 0);
    while let Some(frame) = Pin::new(&mut body).frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        let ahead = written
            .load(std::sync::atomic::Ordering::SeqCst)
            .saturating_sub(read);
        ahead_max = ahead_max.max(ahead);
    }
    let report = end.await;
    assert_eq!(
        (read, report.bytes),
        (PIECE * PIECES, (PIECE * PIECES) as u64)
    );
    assert_eq!((report.broken, report.kept), (None, None));
    // Socket buffers on both sides and one piece; far from the whole.
    assert!(
        ahead_max < 16 * PIECE,
        "{ahead_max} bytes ahead of the reader"
    );
    tool_task.await.unwrap();
    assert_eq!(tool.destination().idle_connections(), 1);
}
