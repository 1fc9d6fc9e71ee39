//! Configuration: YAML as an operator writes it, and the proven values the rest of the house uses.
//!
//! Two stages: `file` reads strictly and knows positions, [`resolved`] holds values that need no
//! second look. Past this module no raw string names a thing. Deliberately absent: reading the
//! environment (a look-up function is passed in, so that tests and the demo bring their own) and
//! reload, which comes with its own issue.

pub mod matcher;
pub mod resolved;
pub mod route;
pub mod template;

pub use matcher::{Matcher, PathPattern};
pub use resolved::{Admin, Config, Drain, LedgerConfig, LedgerUrl, Limits, Log, Notice, Secret};
pub use route::{ReceiptRule, Route, Upstream};
