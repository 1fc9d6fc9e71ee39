//! A receiver of alerts in virtual time: keeps what arrives, answers by plan.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::upstream::{Dialling, Pipe, StandIn, StandInDialer};

/// What the receiver does with the n-th thing it is asked, from 1.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Answer(u16),
    Hang,
    Refuse,
}

pub(super) type Plan = fn(usize) -> Act;

/// One alert that arrived, whatever it was answered with.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) head: String,
    pub(super) body: String,
    pub(super) taken: bool,
}

#[derive(Clone)]
pub(super) struct Inbox {
    plan: Arc<Mutex<Plan>>,
    asked: Arc<Mutex<usize>>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Inbox {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan: Arc::new(Mutex::new(plan)),
            asked: Arc::default(),
            arrived: Arc::default(),
        }
    }

    /// Behaves like this from now on.
    pub(super) fn plan(&self, plan: Plan) {
        *self.plan.lock() = plan;
    }

    /// Every alert that arrived.
    pub(super) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().clone()
    }

    /// The documents that were taken.
    pub(super) fn taken(&self) -> Vec<Value> {
        let arrived = self.arrived();
        let taken = arrived.iter().filter(|alert| alert.taken);
        taken.map(Arrived::document).collect()
    }

    /// How often it was asked anything, a connection that was refused included.
    pub(super) fn asked(&self) -> usize {
        *self.asked.lock()
    }

    pub(super) fn dialer(&self) -> StandInDialer {
        let inbox = self.clone();
        Box::new(move || -> Dialling {
            let inbox = inbox.clone();
            Box::pin(async move {
                if matches!(inbox.next(), Act::Refuse) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                tokio::spawn(inbox.serve(theirs));
                Ok(Box::new(Pipe(ours)) as Box<dyn StandIn>)
            })
        })
    }

    /// What is done with what comes next; counted once it is done.
    fn next(&self) -> Act {
        let act = (self.plan.lock())(*self.asked.lock() + 1);
        if matches!(act, Act::Refuse) {
            *self.asked.lock() += 1;
        }
        act
    }

    async fn serve(self, mut socket: DuplexStream) {
        while let Some((head, body)) = read_request(&mut socket).await {
            let act = self.next();
            *self.asked.lock() += 1;
            let taken = matches!(act, Act::Answer(200..=299));
            self.arrived.lock().push(Arrived { head, body, taken });
            let Act::Answer(status) = act else {
                return std::future::pending().await;
            };
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok");
            if socket.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

impl Arrived {
    pub(super) fn document(&self) -> Value {
        serde_json::from_str(&self.body).expect("an alert is JSON")
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

async fn read_request(socket: &mut DuplexStream) -> Option<(String, String)> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&piece[..count]),
        }
    }
}
