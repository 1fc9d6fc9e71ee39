//! The network: connections between the gateway and its tool that lose, delay, double and reorder
//! what goes over them, refuse to be opened, stall, and break in the middle.
//!
//! A reset by the gateway kills what waits in its kernel; what is in the network already may still
//! arrive. Deliberately absent: the gateway's end of a connection (`pipe`).

use std::io;
use std::task::{Poll, Waker};

use crate::plan::PROMPT_MS;
use crate::world::{Event, State};

/// Every connection there ever was.
#[derive(Default)]
pub(crate) struct Net {
    pub(crate) conns: Vec<Conn>,
}

#[derive(Default)]
pub(crate) struct Conn {
    /// The address of the tool it leads to.
    site: usize,
    /// It leads to the receipt endpoint.
    asks: bool,
    /// What the gateway has written of its request.
    out: Vec<u8>,
    /// What the kernel takes of it before it is full.
    window: Option<usize>,
    /// What has arrived for the gateway.
    pub(crate) inbox: Vec<u8>,
    /// The tool's end has arrived; a reset or not.
    pub(crate) ended: Option<bool>,
    /// The tool has closed its end; what is sent now is lost.
    closing: bool,
    /// Whether and how the gateway has let go of it.
    pub(crate) left: Left,
    /// A request waits in the gateway's kernel.
    stalled: Option<Sent>,
    /// Requests so far.
    served: u64,
    waiting: bool,
    /// What has come of the answer to a request that waits for it.
    awaited: Option<(String, Vec<u8>)>,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
}

/// Whether and how the gateway has let go of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Left {
    #[default]
    Open,
    Closed,
    /// What waited in its kernel is dead.
    Reset,
    /// Its process was killed, and its kernel closed it.
    Killed,
}

/// Where an answer goes: a connection, and which of its requests is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back {
    conn: usize,
    request: u64,
}

/// One send of a call.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) back: Back,
    /// The address of the tool it goes to.
    pub(crate) site: usize,
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) key: String,
    pub(crate) body: String,
    pub(crate) at: u64,
    /// Which use of the call id it belongs to.
    pub(crate) of_life: u32,
    /// It arrives even when the gateway resets the connection.
    survives: bool,
    /// It waits in the gateway's kernel.
    stalled: bool,
    /// The network made this copy.
    pub(crate) copy: bool,
}

/// One question about a call.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) back: Back,
    /// The address of the tool it goes to.
    pub(crate) site: usize,
    pub(crate) id: String,
}

impl State {
    pub(crate) fn dialled(
        &mut self,
        (site, asks): (usize, bool),
        life: u32,
    ) -> (Option<io::Result<usize>>, u64) {
        if !self.touched(life) {
            return (None, 0);
        }
        let dead = self
            .plan
            .net
            .dead
            .is_some_and(|dead| dead.has(site, self.now()));
        let down = dead || self.now() < self.plan.net.down_until;
        let refuses = if down { 95 } else { self.plan.net.refuses };
        if self.dice.percent(refuses) {
            // Refused at once, or nobody answers.
            let answered = self.dice.percent(70);
            self.say(|| format!("net   no connection (receipt: {asks}, answered: {answered})"));
            return (
                answered.then(|| Err(io::ErrorKind::ConnectionRefused.into())),
                1,
            );
        }
        self.net.conns.push(Conn {
            site,
            asks,
            ..Conn::default()
        });
        let takes = if self.dice.percent(self.plan.net.delays) {
            40
        } else {
            0
        };
        (Some(Ok(self.net.conns.len() - 1)), takes)
    }

    fn back(&self, conn: usize) -> Back {
        Back {
            conn,
            request: self.net.conns[conn].served,
        }
    }

    /// How long something is under way: never longer than a prompt network takes, unless it is
    /// allowed to be.
    fn travel(&mut self) -> u64 {
        if self.dice.percent(self.plan.net.delays) {
            self.dice.within(20, PROMPT_MS)
        } else {
            self.dice.within(0, 3)
        }
    }

    pub(crate) fn wrote(&mut self, conn: usize, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.net.conns[conn].ended == Some(true) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.net.conns[conn].out.is_empty() && self.net.conns[conn].window.is_none() {
            let full = self.dice.percent(self.plan.net.stalls);
            let window = if full {
                self.dice.below(bytes.len() as u64)
            } else {
                u64::MAX
            };
            self.net.conns[conn].window = Some(usize::try_from(window).unwrap_or(usize::MAX));
            if full && self.dice.percent(70) {
                let wait = self.dice.within(100, 3_000);
                self.after(wait, Event::Window(conn));
            }
        }
        let of = &mut self.net.conns[conn];
        let room = of.window.unwrap_or(usize::MAX);
        let taken = bytes.len().min(room);
        if taken == 0 && !bytes.is_empty() {
            return Poll::Pending;
        }
        of.window = Some(room - taken);
        of.out.extend_from_slice(&bytes[..taken]);
        self.request_may_be_complete(conn);
        Poll::Ready(Ok(taken))
    }

    fn request_may_be_complete(&mut self, conn: usize) {
        let of = &mut self.net.conns[conn];
        let Some(request) = Request::parse(&of.out) else {
            return;
        };
        of.out.clear();
        of.window = None;
        of.served += 1;
        of.waiting = true;
        of.awaited = (!of.asks).then(|| (request.id.clone(), Vec::new()));
        if request.path.starts_with("/undo/") {
            of.awaited = None;
            self.undo_leaves(conn, &request);
        } else if of.asks {
            self.question_leaves(conn, &request);
        } else {
            self.request_leaves(conn, &request);
        }
    }

    fn request_leaves(&mut self, conn: usize, request: &Request) {
        let site = self.net.conns[conn].site;
        let sent = Sent {
            back: self.back(conn),
            site,
            id: request.id.clone(),
            attempt: request.attempt,
            key: request.key.clone(),
            body: request.body.clone(),
            at: self.now(),
            of_life: self.sends_to(site, request),
            survives: self.dice.percent(50),
            stalled: false,
            copy: false,
        };
        if self.net.conns[conn].closing || self.dice.percent(self.plan.net.loses) {
            self.say(|| format!("net   loses {} #{}", sent.id, sent.attempt));
            return;
        }
        if self.dice.percent(self.plan.net.doubles) {
            let wait = self.travel() + self.dice.within(1, 2_000);
            let copy = Sent {
                // Nobody hears what is answered to it.
                back: Back {
                    conn: usize::MAX,
                    request: 0,
                },
                copy: true,
                survives: true,
                ..sent.clone()
            };
            self.after(wait, Event::Arrives(copy));
        }
        if self.dice.percent(self.plan.net.stalls) {
            let wait = self.dice.within(200, 9_000);
            let sent = Sent {
                stalled: true,
                ..sent
            };
            self.net.conns[conn].stalled = Some(sent.clone());
            return self.after(wait, Event::Arrives(sent));
        }
        let slow = self.plan.net.slow && self.dice.percent(20);
        let wait = if slow {
            self.dice.within(300, 15_000)
        } else {
            self.travel()
        };
        let survives = sent.survives || slow;
        self.after(wait, Event::Arrives(Sent { survives, ..sent }));
    }

    fn undo_leaves(&mut self, conn: usize, request: &Request) {
        self.undoes(request);
        self.asks_at(self.net.conns[conn].site, &request.reverses);
        if self.net.conns[conn].closing || self.dice.percent(self.plan.net.loses) {
            return;
        }
        let wait = self.travel();
        let (back, id) = (self.back(conn), request.reverses.clone());
        let site = self.net.conns[conn].site;
        self.after(wait, Event::Undoes(Asked { back, site, id }));
    }

    fn question_leaves(&mut self, conn: usize, request: &Request) {
        self.asked_about(request);
        self.asks_at(self.net.conns[conn].site, &request.id);
        if self.net.conns[conn].closing || self.dice.percent(self.plan.net.loses) {
            return;
        }
        let wait = self.travel();
        let (back, id) = (self.back(conn), request.id.clone());
        let site = self.net.conns[conn].site;
        self.after(wait, Event::Asks(Asked { back, site, id }));
    }

    /// Whether what was sent still reaches the tool now.
    pub(crate) fn gets_through(&mut self, sent: &Sent) -> bool {
        let Some(of) = self.net.conns.get_mut(sent.back.conn) else {
            return true;
        };
        if sent.stalled {
            of.stalled = None;
        }
        match of.left {
            Left::Open | Left::Closed => true,
            Left::Reset => sent.survives && !sent.stalled,
            Left::Killed => !sent.stalled,
        }
    }

    /// The tool answers on a connection. What the network does to it is decided here.
    pub(crate) fn answers(&mut self, back: Back, status: u16, extra: &str, body: &str) {
        let conn = back.conn;
        let Some(of) = self.net.conns.get_mut(conn) else {
            return;
        };
        if of.left != Left::Open || of.served != back.request || !std::mem::take(&mut of.waiting) {
            return;
        }
        if self.dice.percent(self.plan.net.loses) {
            return self.say(|| format!("net   loses the answer {status}"));
        }
        let wait = self.travel();
        if self.dice.percent(self.plan.net.resets) {
            return self.after(wait, Event::Ends(conn, true));
        }
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             {extra}\r\n{body}",
            body.len()
        );
        let bytes = text.into_bytes();
        if self.dice.percent(self.plan.net.cuts) {
            let cut = self.dice.below(bytes.len() as u64);
            let cut = usize::try_from(cut).expect("an answer is short");
            let reset = self.dice.percent(50);
            self.after(wait, Event::Bytes(conn, bytes[..cut].to_vec()));
            return self.after(wait + 1, Event::Ends(conn, reset));
        }
        if self.dice.percent(self.plan.net.delays / 2) {
            let cut = usize::try_from(self.dice.below(bytes.len() as u64)).expect("short");
            let (head, rest) = bytes.split_at(cut);
            let gap = self.dice.within(1, 1_500);
            self.after(wait, Event::Bytes(conn, head.to_vec()));
            return self.after(wait + gap, Event::Bytes(conn, rest.to_vec()));
        }
        self.after(wait, Event::Bytes(conn, bytes));
        let served = self.net.conns[conn].served;
        let patience = self.dice.within(500, 20_000);
        self.after(wait + patience, Event::Idles(conn, served));
    }

    /// The tool gives a connection up without an answer.
    pub(crate) fn hangs_up(&mut self, back: Back, reset: bool) {
        let conn = back.conn;
        let Some(of) = self
            .net
            .conns
            .get_mut(conn)
            .filter(|of| of.served == back.request)
        else {
            return;
        };
        of.closing = true;
        let wait = self.travel();
        self.after(wait, Event::Ends(conn, reset));
    }

    pub(crate) fn bytes_arrive(&mut self, conn: usize, bytes: &[u8]) {
        let of = &mut self.net.conns[conn];
        if of.left == Left::Open && of.ended.is_none() {
            of.inbox.extend_from_slice(bytes);
            wake(&mut of.reader);
            if let Some((id, got)) = &mut of.awaited {
                got.extend_from_slice(bytes);
                if got.windows(4).any(|four| four == b"\r\n\r\n") {
                    let status = String::from_utf8_lossy(&got[9..12]).into_owned();
                    let id = std::mem::take(id);
                    of.awaited = None;
                    self.head_arrived(&id, &status);
                }
            }
        }
    }

    pub(crate) fn end_arrives(&mut self, conn: usize, reset: bool) {
        let of = &mut self.net.conns[conn];
        of.closing = true;
        if of.left == Left::Open && of.ended.is_none() {
            of.ended = Some(reset);
            wake(&mut of.reader);
            wake(&mut of.writer);
        }
    }

    pub(crate) fn window_opens(&mut self, conn: usize) {
        let of = &mut self.net.conns[conn];
        of.window = Some(usize::MAX);
        wake(&mut of.writer);
    }

    pub(crate) fn idles(&mut self, conn: usize, served: u64) {
        self.hangs_up(
            Back {
                conn,
                request: served,
            },
            false,
        );
    }

    /// What the network still does for a process that was killed: its kernel closes what was open,
    /// and what it held arrives soon or never.
    pub(crate) fn net_after_crash(&mut self) {
        for conn in 0..self.net.conns.len() {
            let of = &mut self.net.conns[conn];
            if of.left != Left::Open {
                continue;
            }
            of.left = Left::Killed;
            (of.reader, of.writer) = (None, None);
            if let Some(sent) = of.stalled.take()
                && self.dice.percent(50)
            {
                let when = self.base() + self.dice.within(0, PROMPT_MS);
                self.at(
                    when,
                    Event::Arrives(Sent {
                        stalled: false,
                        ..sent
                    }),
                );
            }
        }
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// A request as it left the gateway.
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) key: String,
    /// The call it undoes.
    pub(crate) reverses: String,
    pub(crate) body: String,
}

impl Request {
    /// A complete one.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).expect("the head is text");
        let mut lines = head.split("\r\n");
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let [mut id, mut key, mut reverses] = [const { String::new() }; 3];
        let (mut attempt, mut length) = (0, 0);
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            match name {
                "x-call-id" => value.clone_into(&mut id),
                "idempotency-key" => value.clone_into(&mut key),
                "x-call-reverses" => value.clone_into(&mut reverses),
                "x-call-attempt" => attempt = value.parse().expect("a number"),
                "content-length" => length = value.parse().expect("a number"),
                _ => {}
            }
        }
        let body = bytes.get(end + 4..end + 4 + length)?;
        Some(Self {
            path,
            id,
            attempt,
            key,
            reverses,
            body: String::from_utf8_lossy(body).into_owned(),
        })
    }
}
