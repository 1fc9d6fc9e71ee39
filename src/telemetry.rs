//! What operators see of a running gateway: metrics, logs and readiness.
//!
//! Everything here takes plain arguments, so that any module above may report without knowing
//! configuration or clock. Deliberately absent: traces. `traceparent` is passed on and its trace
//! id stands in the log; spans of our own would cost more per call than the call.

pub mod labels;
pub mod log;
pub mod metrics;
pub mod names;
pub mod readiness;
