//! How one attempt ended, and what a status means for the call.

use http::StatusCode;

/// How one attempt ended (contract, section 3, rule 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A complete answer arrived, read as this word.
    Answered(Reading),
    /// It is proved that no byte of the request reached the tool.
    NotSent(NotSent),
    /// Everything else: the tool may have done the work.
    Unclear(Unclear),
}

/// Proof that nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The connection was refused, unreachable, or not up within `timeouts.connect`.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The HTTP client handed the request back unwritten, on a fresh connection too.
    HandedBack,
    /// HTTP/2 REFUSED_STREAM, a stream above a GOAWAY's last id, or an inner gateway's `refused`.
    Refused,
}

/// Why nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// No complete answer within `timeouts.attempt` (or a gap longer than `timeouts.idle`).
    Timeout,
    /// The connection was reset or closed, or the answer was cut short or could not be parsed.
    Disconnect,
}

/// A complete answer, read as the route says it is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Final: 2xx or 3xx, and what it says is success.
    Success(StatusCode),
    /// Final: a refusal by the tool that binds id and key (4xx, or "failed" inside a 200).
    Failure(StatusCode),
    /// Passed on but binds nothing: 401, 403, 408, 425, 429 and 304, 307, 308. A repeat is sent.
    Unbinding(StatusCode),
    /// The tool accepted the work and has not finished it (`accepted: pending`).
    Pending(StatusCode),
    /// 5xx, or a state word nobody mapped: unclear, but the answer is kept.
    Kept(StatusCode),
}

impl Reading {
    /// Reads a complete answer by its status alone (contract, section 3, rule 3).
    #[must_use]
    pub fn by_status(status: StatusCode) -> Self {
        match status.as_u16() {
            304 | 307 | 308 | 401 | 403 | 408 | 425 | 429 => Self::Unbinding(status),
            200..=399 => Self::Success(status),
            400..=499 => Self::Failure(status),
            // 1xx never ends an exchange; should one arrive here, or a status beyond 599, nobody
            // knows what it means.
            _ => Self::Kept(status),
        }
    }

    /// The status the tool sent.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Success(s)
            | Self::Failure(s)
            | Self::Unbinding(s)
            | Self::Pending(s)
            | Self::Kept(s) => s,
        }
    }
}

/// Why a call is sent again: the value of `X-Call-Retry-Cause` and of `retry.on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing could be sent.
    Connect,
    /// No complete answer in time.
    Timeout,
    /// The connection died or the answer was unusable.
    Disconnect,
    /// A 5xx answer (`5xx` in `retry.on`), or a 4xx that spoke only for itself.
    Status,
}

impl Cause {
    /// Every cause, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Timeout, Self::Disconnect, Self::Status];

    /// The word on the wire, in logs and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Disconnect => "disconnect",
            Self::Status => "status",
        }
    }
}

impl Outcome {
    /// The cause a resend after this outcome would carry.
    #[must_use]
    pub const fn cause(self) -> Cause {
        match self {
            Self::NotSent(_) => Cause::Connect,
            Self::Unclear(Unclear::Timeout) => Cause::Timeout,
            Self::Unclear(Unclear::Disconnect) => Cause::Disconnect,
            Self::Answered(_) => Cause::Status,
        }
    }

    /// The word for the attempt's end in metrics (`callgate_attempts_total{result}`), logs and
    /// history.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered(_) => "answered",
            Self::NotSent(_) => "not_sent",
            Self::Unclear(Unclear::Timeout) => "timeout",
            Self::Unclear(Unclear::Disconnect) => "disconnect",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_rule_3_says() {
        let read = |n: u16| Reading::by_status(StatusCode::from_u16(n).unwrap());
        for n in 100..=999u16 {
            let reading = read(n);
            assert_eq!(reading.status().as_u16(), n);
            let word = match reading {
                Reading::Success(_) => "success",
                Reading::Failure(_) => "failure",
                Reading::Unbinding(_) => "unbinding",
                Reading::Pending(_) => "pending",
                Reading::Kept(_) => "kept",
            };
            let expected = match n {
                304 | 307 | 308 | 401 | 403 | 408 | 425 | 429 => "unbinding",
                200..=399 => "success",
                400..=499 => "failure",
                _ => "kept",
            };
            assert_eq!(word, expected, "{n}");
        }
    }
}
