//! The command line: one module per subcommand. Composition only; nothing about a call is decided
//! here.

pub mod demo;
