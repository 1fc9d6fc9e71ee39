//! The compensation queue: what could not be settled in line, and the people who work with it.
//!
//! The second door to `flow`: the [`worker`] claims dead letters that are due and hands each to one
//! round; [`verbs`] is what an operator may do about one of them, and [`job`] does it to many. What
//! a round or an order does is decided below. What people have to know of is told by [`alert`].

pub mod alert;
pub mod job;
pub mod verbs;
pub mod worker;

pub use alert::Alerter;
pub use job::Jobs;
pub use verbs::Verbs;
pub use worker::Worker;
