//! What can stand in for the socket of a connection: the seam of the simulation (`tests/sim`).
//!
//! A simulated world brings its own network, so that the whole gateway above the socket runs as it
//! is, over virtual time. Deliberately absent: any use of it in the product; without a dialer of
//! this kind a destination speaks TCP.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection of a simulated network.
pub trait StandIn: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether it is open and there is nothing to read.
    fn is_quiet(&self) -> bool;

    /// Makes the coming close a reset: what was not delivered dies with the connection.
    fn reset(&mut self);
}

/// Opens connections of a simulated network.
pub type StandInDialer = Box<dyn Fn() -> Dialling + Send + Sync>;

/// A simulated connection being opened.
pub type Dialling = Pin<Box<dyn Future<Output = io::Result<Box<dyn StandIn>>> + Send>>;
