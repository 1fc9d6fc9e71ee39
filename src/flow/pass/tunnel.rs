//! A caller and a tool that switch to another protocol (WebSocket): asked for once, then handed
//! over.
//!
//! A tunnel is sent for once and never again: after a 101 nothing may be repeated, and a caller
//! whose handshake failed knows how to come back. The attempt timeout bounds the handshake only.

use std::sync::Arc;

use http::{HeaderValue, Version};

use super::{Pass, PassBody, answered, stream, whole};
use crate::call::outcome::{Outcome, Reading, Unclear};
use crate::flow::Request;
use crate::flow::reading;
use crate::flow::sites::Choice;
use crate::flow::told::{Shown, Switched, Told};
use crate::upstream::headers;
use crate::upstream::{Ended, Mode, Opened, Terms, open_tunnel};

/// The protocol a request wishes to switch to; `None` for a plain one. A request with a body is
/// always plain: nobody says to which protocol its bytes would belong.
pub(super) fn wish(request: &Request<PassBody>) -> Option<HeaderValue> {
    let empty = matches!(&request.body, PassBody::Whole(body) if body.is_empty());
    if request.version != Version::HTTP_11 || !empty {
        return None;
    }
    // An ordinary head wishes for no such thing.
    let wishes = request.headers.text().is_none();
    wishes.then(|| headers::websocket(&request.headers).cloned())?
}

impl Pass<'_> {
    /// Asks the tool to switch. Whatever it answers instead is passed on.
    pub(super) async fn tunnel(&mut self, wish: HeaderValue) -> Told {
        let route = Arc::clone(&self.request.route);
        let policy = &route.conf.policy;
        let began = self.core.clock.mono();
        let terms = Terms {
            connect: policy.timeouts.connect,
            idle: policy.timeouts.idle,
            max_kept: 0,
            mode: Mode::Pass,
        };
        let chosen = match self.finds_address(false) {
            Choice::Out => return self.failed(0, self.held_back()),
            to @ (Choice::Plain | Choice::To(_)) => self.sits_at(to),
        };
        let to = chosen.as_ref().unwrap_or_else(|| route.tool.destination());
        let request = self.outgoing(1, None);
        let opened = tokio::select! {
            biased;
            opened = open_tunnel(self.core, to, request, &wish, terms) => opened,
            () = self.core.wheel.sleep(policy.timeouts.attempt) => {
                Opened::Not(Ended::Unclear(Unclear::Timeout))
            }
        };
        let (outcome, shown) = match opened {
            Opened::Switched(headers, tunnel) => {
                let switched = Shown::Tunnel(Box::new(Switched {
                    headers,
                    protocol: wish,
                    tunnel: Some(tunnel),
                    idle: policy.timeouts.idle,
                }));
                let reading = Reading::Success(switched.status());
                (Outcome::Answered(reading), Some(switched))
            }
            Opened::Not(Ended::Streaming(answer)) => {
                (answered(answer.status), Some(stream(*answer)))
            }
            Opened::Not(Ended::Collected(answer)) => (answered(answer.status), Some(whole(answer))),
            Opened::Not(Ended::NotSent(why)) => (Outcome::NotSent(why), None),
            Opened::Not(Ended::Unclear(why)) => (Outcome::Unclear(why), None),
        };
        self.sent(1, None, began, outcome);
        self.held = std::mem::take(&mut self.held).ended(outcome, &route, self.core);
        match shown {
            Some(shown) => self.told(reading::word(&route.conf, &shown), 1, shown),
            None => self.failed(1, outcome),
        }
    }
}
