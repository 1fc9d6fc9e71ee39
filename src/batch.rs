//! Batches: a file of rows becomes calls, which the gateway makes by itself.
//!
//! The third door to `flow`. [`rows`] reads a file, [`recipe`] says what request a row means,
//! [`intake`] writes the items with their call ids, and the [`worker`] takes them up in order and
//! hands each to the same admission as a caller's request; [`outcome`] reads what that came to.
//! Deliberately absent: any decision about a call. An item that is run twice, after a crash or by
//! mistake, is a repeat of its call, and the ledger's claim decides what a repeat gets.

pub mod csv;
pub mod intake;
mod item;
pub mod outcome;
pub mod recipe;
pub mod rows;
mod run;
pub mod worker;

pub use intake::Intake;
pub use worker::Worker;
