//! The real gateway against a scripted tool, over real sockets.
//!
//! Everything here speaks to the binary as a stranger would: bytes on its listeners, its exit code,
//! its log, its metrics. Nothing imports the library, so a test can only rely on what the contract
//! promises. Time is real and policies are in milliseconds; lower bounds are exact, upper bounds
//! generous, and a test waits for events, never for a guess of how long something takes.
//!
//! Deliberately absent: any knowledge of how the gateway is built, and any fixed port.
#![allow(
    clippy::disallowed_methods,
    reason = "these tests stand outside the process: they measure it with the real clock"
)]

mod accepted;
mod addresses;
mod alerts;
mod answers;
mod batch_doors;
mod batch_files;
mod batch_limits;
mod batches;
mod bodies;
mod bounds;
mod bulk;
mod chains;
mod check_command;
mod clients;
mod connections;
mod crashes;
mod cut_answers;
mod disks;
mod draining;
mod duplicates;
mod endless;
mod fixture;
mod floods;
mod former;
mod framing;
mod grammar;
mod grpc;
mod h2c;
mod http2_tools;
mod identity;
mod keys;
mod kills;
mod leaving;
mod ledger;
mod limits;
mod new_ids;
mod odd_files;
mod operators;
mod plain;
mod process;
mod receipts;
mod recognised;
mod refusals;
mod reload;
mod reserved;
mod reversal;
mod rounds;
mod scopes;
mod storm;
mod takeover;
mod telemetry;
mod terminal;
mod told;
mod tunnels;
mod waiting;
mod why;
