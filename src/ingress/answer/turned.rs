//! An answer's body, which keeps its request's turn until it is out.
//!
//! On HTTP/1 a connection has one answer on its way, so the turn may go when the body was handed
//! over. On HTTP/2 a caller who reads nothing can have many handed over and unsent, so there every
//! piece holds the turn until the socket has taken it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use crate::flow::told::BodyError;
use crate::ingress::reply::ReplyBody;
use crate::ingress::seat::Turn;

/// The body, and what it holds.
pub(in crate::ingress) struct Turned {
    body: ReplyBody,
    turn: Held,
}

enum Held {
    Nothing,
    ByBody { turn: Turn },
    ByPieces(Arc<Turn>),
}

/// A piece on its way to a socket.
struct Piece {
    bytes: Bytes,
    _turn: Arc<Turn>,
}

impl Turned {
    /// `multiplexed`: other answers go out on the same connection.
    pub(in crate::ingress) fn response(
        response: Response<ReplyBody>,
        turn: Option<Turn>,
        multiplexed: bool,
    ) -> Response<Self> {
        let turn = match turn {
            None => Held::Nothing,
            Some(turn) if multiplexed => Held::ByPieces(Arc::new(turn)),
            Some(turn) => Held::ByBody { turn },
        };
        response.map(|body| Self { body, turn })
    }

    /// The body itself.
    pub(in crate::ingress) const fn inner(&self) -> &ReplyBody {
        &self.body
    }

    /// What it holds, where it holds it alone.
    pub(in crate::ingress) fn into_turn(self) -> Option<Turn> {
        match self.turn {
            Held::ByBody { turn } => Some(turn),
            Held::Nothing | Held::ByPieces(_) => None,
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for Turned {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Held::ByPieces(turn) = &self.turn else {
            return Poll::Ready(next);
        };
        let riding = |bytes| {
            Bytes::from_owner(Piece {
                bytes,
                _turn: Arc::clone(turn),
            })
        };
        Poll::Ready(next.map(|frame| frame.map(|frame| frame.map_data(riding))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
