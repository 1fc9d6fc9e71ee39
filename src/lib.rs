//! callgate: a tool-call gateway that never says success or failure when it does not know.
//!
//! # Glossary (the same words in code, configuration, SQL, metrics and documentation)
//!
//! - **call**: one intended operation by one client, identified by its **call id** (`X-Call-Id`).
//! - **attempt**: one send of the call to the tool.
//! - **outcome**: how an attempt ended: answered, not sent, or unclear.
//! - **receipt**: the tool's own answer to "what became of this call id?".
//! - **ledger**: the durable record of calls, written before anything is sent.
//! - **dead letter**: a call that could not be settled in line; it waits in the compensation queue.
//! - **round**: one pass of the compensation worker over a dead letter.
//! - **exchange**: one request on one upstream connection; after its attempt timeout it is *late*,
//!   and its answer still counts.
//! - **fact**: a complete answer or a terminal receipt; applies to any unsettled call.
//! - **intention**: a send, a park, a next round; needs the current lease and fencing number.
//!
//! # The path of a call
//!
//! `ingress/listener` accepts, `ingress/identify` proves the headers, `flow/admit` picks the route,
//! the ledger claims the id, `flow/drive` performs what `call/machine` decides (an
//! `upstream/attempt`, an `upstream/receipt`, again or stop), `ingress/reply` answers. What stays
//! unclear is parked in the ledger and `compensate/worker` hands it to `flow` again.
//!
//! # Layers
//!
//! A module imports only from lines above its own, never a sibling on its line; `tests/tidy.rs`
//! holds this.

// 0: pure decisions.
pub mod call;

// 1: time, chance, configuration, what operators see, and where tests let the process die.
pub mod clock;
pub mod config;
pub mod crash;
pub mod entropy;
pub mod telemetry;

// 2: the durable record, and the tools.
pub mod ledger;
pub mod upstream;

// 3: decisions meet effects.
pub mod flow;

// 4: the doors.
pub mod batch;
pub mod compensate;
pub mod ingress;

// 5: the operator's door.
pub mod admin;

// 6: everything put together.
pub mod app;

// 7: the command line.
pub mod cli;
