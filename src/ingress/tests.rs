//! The callers' listener over real sockets, in front of a door that does what a test says.

mod draining;
mod framing;
mod gate;
mod ids;
mod leaving;
mod limits;
mod peer;
mod refusals;
mod shapes;

use gate::{Gate, told_stream, told_whole};
use peer::Peer;
