//! callgate: a tool-call gateway.

pub mod cli;
