//! When an address of a tool that fails is left alone, and for how long (`upstream.ejection`).

use std::time::Duration;

use crate::call::outcome::Cause;

/// The rule of one tool's addresses. All numbers have defaults; see the documentation of each key.
#[derive(Clone, Debug, PartialEq)]
pub struct Ejection {
    /// So many failures in a row; 0: a row of failures ejects nobody.
    pub consecutive: u32,
    /// This share of failures among the sends of `window`; 0: no share ejects anybody.
    pub share: f64,
    /// How far back the share looks.
    pub window: Duration,
    /// Fewer sends than this in the window say nothing about the share.
    pub samples: u32,
    /// How long an address is left alone for the first time; doubled each further time.
    pub base: Duration,
    /// The longest an address is left alone.
    pub cap: Duration,
    /// When more than this share of several addresses is out, all are used.
    pub max_ejected: f64,
    /// What counts as a failure.
    pub on: Vec<Cause>,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            consecutive: 5,
            share: 0.5,
            window: Duration::from_secs(30),
            samples: 20,
            base: Duration::from_secs(10),
            cap: Duration::from_secs(300),
            max_ejected: 0.8,
            on: vec![
                Cause::Connect,
                Cause::Timeout,
                Cause::Disconnect,
                Cause::Status,
            ],
        }
    }
}
