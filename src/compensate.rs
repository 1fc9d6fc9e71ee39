//! The compensation queue's worker: what could not be settled in line is taken up again.
//!
//! The second door to `flow`: the [`worker`] claims dead letters that are due and hands each to
//! one round; what a round does is decided below. What people have to know of is told by
//! [`alert`]. Deliberately absent: reversal and the operator's verbs, which come with their own
//! issue.

pub mod alert;
pub mod worker;

pub use alert::Alerter;
pub use worker::Worker;
