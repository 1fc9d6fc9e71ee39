//! What passes over an HTTP/2 connection, as far as the proofs of an exchange need it: frame heads.
//!
//! The HTTP client does not say whether a stream's first frame has left, whether its last one has,
//! or which streams a GOAWAY has left out. The bytes say so: nine of each frame are read here
//! (RFC 9113, 4.1), and four of a GOAWAY. Deliberately absent: any judgement about the rest, which
//! is the library's.

/// How a client's connection begins, before its first frame.
const PREFACE_BYTES: usize = 24;
/// A frame's head.
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// What a frame means for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The head of its first frame, so the rest may follow.
    Begun(u32),
    /// The last byte of its last frame.
    Whole(u32),
    /// A whole RST_STREAM.
    Reset(u32),
    /// A GOAWAY: no stream above this one was looked at.
    GoAway(u32),
    /// A whole frame that concerns no request: PING, SETTINGS, PRIORITY.
    Control,
}

/// Follows the frames of one direction.
#[derive(Debug)]
pub struct Frames {
    /// Bytes of the preface, or of the present frame's payload, still to pass.
    left: usize,
    head: [u8; HEAD_BYTES],
    filled: usize,
    /// The first bytes of a GOAWAY's payload.
    last: [u8; 4],
    taken: usize,
    /// A HEADERS frame ended its stream; its CONTINUATIONs may still follow.
    ending: bool,
}

impl Frames {
    /// Of what a client writes.
    #[must_use]
    pub const fn of_client() -> Self {
        Self::after(PREFACE_BYTES)
    }

    /// Of what a server writes.
    #[must_use]
    pub const fn of_server() -> Self {
        Self::after(0)
    }

    const fn after(left: usize) -> Self {
        Self {
            left,
            head: [0; HEAD_BYTES],
            filled: 0,
            last: [0; 4],
            taken: 0,
            ending: false,
        }
    }

    /// Follows `bytes`, the next that have passed.
    pub fn follow(&mut self, mut bytes: &[u8], mut note: impl FnMut(Passed)) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let now = self.left.min(bytes.len());
                self.keep_last(&bytes[..now]);
                self.left -= now;
                bytes = &bytes[now..];
            } else {
                let now = (HEAD_BYTES - self.filled).min(bytes.len());
                self.head[self.filled..self.filled + now].copy_from_slice(&bytes[..now]);
                self.filled += now;
                bytes = &bytes[now..];
                if self.filled < HEAD_BYTES {
                    return;
                }
                self.left = self.payload();
                self.taken = 0;
                self.begin(&mut note);
            }
            if self.left == 0 && self.filled == HEAD_BYTES {
                self.filled = 0;
                self.end(&mut note);
            }
        }
    }

    fn keep_last(&mut self, payload: &[u8]) {
        if self.filled == HEAD_BYTES && self.kind() == GOAWAY {
            let now = (self.last.len() - self.taken).min(payload.len());
            self.last[self.taken..self.taken + now].copy_from_slice(&payload[..now]);
            self.taken += now;
        }
    }

    fn begin(&mut self, note: &mut impl FnMut(Passed)) {
        if self.kind() == HEADERS {
            self.ending = self.has(END_STREAM);
            note(Passed::Begun(self.stream()));
        }
    }

    fn end(&mut self, note: &mut impl FnMut(Passed)) {
        let stream = self.stream();
        match self.kind() {
            DATA if self.has(END_STREAM) => note(Passed::Whole(stream)),
            HEADERS | CONTINUATION if self.ending && self.has(END_HEADERS) => {
                self.ending = false;
                note(Passed::Whole(stream));
            }
            PRIORITY | SETTINGS | PING => note(Passed::Control),
            RST_STREAM => note(Passed::Reset(stream)),
            GOAWAY if self.taken == self.last.len() => note(Passed::GoAway(number(self.last))),
            _ => {}
        }
    }

    fn payload(&self) -> usize {
        number([0, self.head[0], self.head[1], self.head[2]]) as usize
    }

    const fn kind(&self) -> u8 {
        self.head[3]
    }

    const fn has(&self, flag: u8) -> bool {
        self.head[4] & flag != 0
    }

    fn stream(&self) -> u32 {
        number([self.head[5], self.head[6], self.head[7], self.head[8]])
    }
}

/// 31 bits; the first of the 32 is reserved.
fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    fn followed(mut frames: Frames, bytes: &[u8], piece: usize) -> Vec<Passed> {
        let mut passed = Vec::new();
        for piece in bytes.chunks(piece) {
            frames.follow(piece, |one| passed.push(one));
        }
        passed
    }

    #[test]
    fn a_clients_frames_are_told_however_they_are_cut() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[0; 12]));
        bytes.extend(frame(HEADERS, END_HEADERS, 1, b"block"));
        bytes.extend(frame(DATA, 0, 1, &[7; 300]));
        bytes.extend(frame(HEADERS, END_STREAM, 3, b"first"));
        bytes.extend(frame(CONTINUATION, END_HEADERS, 3, b"rest"));
        bytes.extend(frame(DATA, END_STREAM, 1, b""));
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 5, b""));
        bytes.extend(frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]));
        let expected = [
            Passed::Control,
            Passed::Begun(1),
            Passed::Begun(3),
            Passed::Whole(3),
            Passed::Whole(1),
            Passed::Begun(5),
            Passed::Whole(5),
            Passed::Reset(3),
        ];
        for piece in [1, 2, 5, 9, 10, 64, bytes.len()] {
            assert_eq!(followed(Frames::of_client(), &bytes, piece), expected);
        }
    }

    #[test]
    fn a_frame_that_is_not_there_to_its_end_is_not_told() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"block");
        bytes.extend(&whole[..whole.len() - 1]);
        let passed = followed(Frames::of_client(), &bytes, 4);
        assert_eq!(passed, [Passed::Begun(1)]);
        let head = &bytes[..PREFACE_BYTES + HEAD_BYTES - 1];
        assert_eq!(followed(Frames::of_client(), head, 4), []);
    }

    #[test]
    fn a_goaway_is_told_with_the_last_stream_looked_at() {
        let mut bytes = frame(SETTINGS, 0, 0, b"");
        bytes.extend(frame(GOAWAY, 0, 0, &[0x80, 0, 0, 5, 0, 0, 0, 0, b'x']));
        bytes.extend(frame(GOAWAY, 0, 0, &[0, 0]));
        for piece in [1, 3, bytes.len()] {
            let passed = followed(Frames::of_server(), &bytes, piece);
            assert_eq!(passed, [Passed::Control, Passed::GoAway(5)]);
        }
    }
}
