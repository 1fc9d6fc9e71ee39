//! A small blocking client of the admin API: one request, one answer, one deadline.
//!
//! Deliberately absent: redirects, retries and TLS. Whoever wants an answer again runs the command
//! again.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::exit::Failure;
use super::gateway::Gateway;

/// Somewhat more than the admin listener gives itself for an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Who a command says it is, besides: `user@host`.
const OPERATOR: http::HeaderName = crate::admin::operator::FIELD;

/// A full page of dead letters stays far below it.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// RFC 3986's unreserved bytes stay as they are.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A complete answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// The path and query of one question.
pub(super) struct Target(String);

impl Target {
    pub(super) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// As it goes on the wire.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends a path segment, whatever bytes it holds.
    pub(super) fn segment(mut self, segment: &str) -> Self {
        self.0.push('/');
        self.0.extend(utf8_percent_encode(segment, IN_PATH));
        self
    }

    /// Appends to the path as it is written.
    pub(super) fn plain(mut self, path: &str) -> Self {
        self.0.push_str(path);
        self
    }

    /// Adds a query parameter, when it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.contains('?') { '&' } else { '?' });
            self.0.push_str(name);
            self.0.push('=');
            self.0.extend(utf8_percent_encode(value, IN_PATH));
        }
        self
    }
}

impl Gateway {
    /// A JSON document of the API.
    ///
    /// # Errors
    /// When the gateway does not answer, or answers with a refusal.
    pub(super) fn document(&self, target: &Target) -> Result<Value, Failure> {
        self.read(target, self.ask(target)?)
    }

    /// What the gateway answers to something it is told to do.
    ///
    /// # Errors
    /// When the gateway does not answer, or answers with a refusal.
    pub(super) fn tell(&self, target: &Target, said: &Value) -> Result<Value, Failure> {
        let answer = self.send(&Method::POST, target, Some(said))?;
        self.read(target, answer)
    }

    /// What the gateway answers to something it is told to end.
    ///
    /// # Errors
    /// When the gateway does not answer, or answers with a refusal.
    pub(super) fn delete(&self, target: &Target) -> Result<Value, Failure> {
        let answer = self.send(&Method::DELETE, target, None)?;
        self.read(target, answer)
    }

    fn read(&self, target: &Target, answer: Answer) -> Result<Value, Failure> {
        let document = serde_json::from_slice::<Value>(&answer.body).ok();
        let strange = |what: &str| Failure::Strange {
            address: self.url(),
            what: format!("{} answered {} {what}", target.0, answer.status),
        };
        if answer.status.is_success() {
            return document.ok_or_else(|| strange("without JSON"));
        }
        let problem = document.filter(|problem| problem["code"].is_string());
        let problem = problem.ok_or_else(|| strange("without a problem document"))?;
        let detail = problem["detail"]
            .as_str()
            .unwrap_or("no details")
            .to_owned();
        Err(match answer.status {
            StatusCode::UNAUTHORIZED => Failure::Unauthorized {
                address: self.url(),
            },
            StatusCode::NOT_FOUND => Failure::NotFound(detail),
            status => Failure::Refused { status, detail },
        })
    }

    /// Whatever the gateway answers.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn ask(&self, target: &Target) -> Result<Answer, Failure> {
        self.send(&Method::GET, target, None)
    }

    fn send(
        &self,
        method: &Method,
        target: &Target,
        said: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let asked = runtime
            .block_on(async { timeout(PATIENCE, self.exchange(method, target, said)).await });
        let asked = asked.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", PATIENCE.as_secs());
            Err(Trouble::Unreachable(io::Error::new(
                io::ErrorKind::TimedOut,
                text,
            )))
        });
        asked.map_err(|trouble| match trouble {
            Trouble::Unreachable(source) => Failure::Unreachable {
                address: self.url(),
                origin: self.origin.to_string(),
                source,
            },
            Trouble::Strange(what) => Failure::Strange {
                address: self.url(),
                what,
            },
        })
    }

    async fn exchange(
        &self,
        method: &Method,
        target: &Target,
        said: Option<&Value>,
    ) -> Result<Answer, Trouble> {
        // IPv6 addresses keep their brackets here: the resolver knows them so.
        let port = self.authority.port_u16().unwrap_or(80);
        let host = self.authority.host().trim_matches(['[', ']']);
        let socket = TcpStream::connect((host, port))
            .await
            .map_err(Trouble::Unreachable)?;
        let (mut send, connection) = http1::handshake(TokioIo::new(socket)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{}", self.prefix, target.0))
            .header(header::HOST, self.authority.as_str())
            .header(OPERATOR, operator())
            .header(header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = said.map_or_else(Bytes::new, |said| Bytes::from(said.to_string()));
        if said.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| Trouble::Strange(error.to_string()))?;
        let asking = async {
            let (head, body) = send.send_request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body
                .map_err(|error| Trouble::Strange(error.to_string()))?
                .to_bytes();
            Ok(Answer {
                status: head.status,
                body,
            })
        };
        // The connection is driven beside the question and ends with it.
        tokio::pin!(asking);
        tokio::select! {
            answer = &mut asking => answer,
            ended = connection => { ended?; asking.await }
        }
    }
}

/// Waits between two questions.
///
/// # Errors
/// When there is no runtime to be had.
pub(super) fn pause(wait: Duration) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { crate::clock::sleep(wait).await });
    Ok(())
}

/// Who runs this command, as the audit is to have it.
fn operator() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() {
        "localhost"
    } else {
        host.trim()
    };
    let name = format!("{}@{host}", user.as_deref().unwrap_or("somebody"));
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars().map(plain).take(128).collect()
}

enum Trouble {
    Unreachable(io::Error),
    Strange(String),
}

impl From<hyper::Error> for Trouble {
    fn from(error: hyper::Error) -> Self {
        Self::Strange(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_escapes_whatever_an_id_holds() {
        let target = Target::new("/api/v1/calls")
            .segment("a/b%0d?c")
            .with("client", Some("x&y"));
        let target = target.with("state", None).with("key", Some("ü"));
        assert_eq!(
            target.0,
            "/api/v1/calls/a%2Fb%250d%3Fc?client=x%26y&key=%C3%BC"
        );
    }
}
