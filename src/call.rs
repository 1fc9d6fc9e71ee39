//! The pure decision core: what a call is, what became of it, and what may happen next.
//!
//! Everything the product promises is decided here, as values: nothing in this module reads a
//! clock, draws chance, opens a socket or knows a database. That is what lets a test walk every
//! schedule. Deliberately absent: bytes of requests and answers (the driver keeps them), and any
//! serialisation.

pub mod alert;
pub mod code;
pub mod history;
pub mod id;
pub mod machine;
pub mod outcome;
pub mod policy;
pub mod receipt;
pub mod recovery;
pub mod step;
pub mod tally;
pub mod time;
