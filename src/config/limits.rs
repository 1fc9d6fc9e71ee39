//! Limits as an operator writes them: how many calls are let in, how many are sent at once, how much
//! may be sent again. None of them is set unless it is written; what is not set costs nothing.

use std::time::Duration;

/// What a route lets in (`limits`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteLimits {
    /// Requests of all clients together.
    pub rate: Option<Rate>,
    /// Requests of each client.
    pub client_rate: Option<Rate>,
    /// Requests of each client at once.
    pub client_concurrent: Option<usize>,
}

/// So many requests in each interval (`100/s`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub requests: u32,
    /// The interval; a second at least, because the counter is not sound below.
    pub per: Duration,
}

/// Sends to one tool at once (`upstream.concurrency`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// At most so many.
    pub max: usize,
    /// Calls that may wait for a place.
    pub queue: usize,
    /// Whether the bound follows what the tool can take.
    pub adaptive: Adaptive,
}

/// How the bound on sends moves (`upstream.concurrency.adaptive`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adaptive {
    /// It stands at `max`.
    Off,
    /// It falls by a tenth when sends fail and rises by one per bound's worth of answers.
    Aimd,
}

/// What may be sent to one tool again (`upstream.retry_budget`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Resends per call that was answered.
    pub ratio: f64,
    /// Resends per second whatever else happens.
    pub floor: u32,
    /// Resends of one client under way at once.
    pub per_client: usize,
    /// Resends per second that rounds have for themselves.
    pub rounds: u32,
    /// Receipt queries per second beyond the first of each call.
    pub receipts: u32,
}

/// The least interval of a [`Rate`].
pub const RATE_INTERVAL_MIN: Duration = Duration::from_secs(1);

impl Rate {
    /// Reads `100/s` or `3000/m`.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || "a number of requests per second or minute, such as 100/s or 600/m";
        let (requests, unit) = text.split_once('/').ok_or_else(expected)?;
        let per = match unit {
            "s" => RATE_INTERVAL_MIN,
            "m" => Duration::from_secs(60),
            _ => return Err(expected().to_owned()),
        };
        let plain = requests.bytes().all(|b| b.is_ascii_digit());
        match requests.parse() {
            Ok(requests) if requests > 0 && plain => Ok(Self { requests, per }),
            Ok(_) | Err(_) => Err(expected().to_owned()),
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = if self.per == RATE_INTERVAL_MIN {
            "s"
        } else {
            "m"
        };
        write!(f, "{}/{unit}", self.requests)
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            ratio: 0.2,
            floor: 10,
            per_client: 32,
            rounds: 5,
            receipts: 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_per_second_or_minute_and_reads_back() {
        for text in ["1/s", "100/s", "600/m", "4294967295/s"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "100",
            "0/s",
            "-1/s",
            "+1/s",
            "1/ms",
            "100/100ms",
            "1.5/s",
            "1 /s",
            "/s",
        ] {
            assert!(
                Rate::parse(text).unwrap_err().contains("per second"),
                "{text}"
            );
        }
    }
}
