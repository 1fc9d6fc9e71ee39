//! The command line: one module per subcommand. Composition only; no decision about a call is
//! made here.

pub mod demo;
