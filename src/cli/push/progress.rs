//! Progress of a batch: a bar on a terminal, a few plain lines otherwise; always on stderr.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde_json::Value;

use crate::call::time::Mono;
use crate::clock::Clock;

/// How often a plain line is written at most.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how a batch goes on.
pub(super) struct Progress {
    bar: ProgressBar,
    quiet: bool,
    clock: Clock,
    /// Ended items when it began, and the time.
    began: Option<(u64, Mono)>,
    lined: Option<Mono>,
}

/// The figures that a person looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) items: u64,
    pub(super) ended: u64,
    pub(super) done: u64,
    pub(super) retried: u64,
    pub(super) by_receipt: u64,
    pub(super) unresolved: u64,
    pub(super) refused: u64,
    pub(super) bad: u64,
}

impl Figures {
    pub(super) fn of(batch: &Value) -> Self {
        let of = |name: &str| batch[name].as_u64().unwrap_or(0);
        Self {
            items: of("items"),
            ended: of("items").saturating_sub(of("waiting") + of("leased")),
            done: of("done"),
            retried: of("retried"),
            by_receipt: of("settledByReceipt"),
            unresolved: of("unresolved"),
            refused: of("refused"),
            bad: of("bad"),
        }
    }

    fn words(&self) -> String {
        let mut words = format!(
            "done {}, retried {}, by receipt {}, unresolved {}, refused {}",
            self.done, self.retried, self.by_receipt, self.unresolved, self.refused
        );
        if self.bad > 0 {
            words.push_str(&format!(", bad rows {}", self.bad));
        }
        words
    }
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            bar: bar(quiet),
            quiet,
            clock: Clock::start(),
            began: None,
            lined: None,
        }
    }

    /// Shows the batch as it is now.
    pub(super) fn show(&mut self, batch: &Value) {
        let figures = Figures::of(batch);
        let now = self.clock.mono();
        if self.began.is_none() {
            self.began = Some((figures.ended, now));
            self.bar.set_position(figures.ended);
            // What ended before says nothing about the rate.
            self.bar.reset_eta();
        }
        self.bar.set_length(figures.items);
        self.bar.set_position(figures.ended);
        self.bar.set_message(figures.words());
        let is_due = self.lined.is_none_or(|last| now >= last.after(LINE_EVERY));
        if !self.quiet && self.bar.is_hidden() && is_due {
            self.lined = Some(now);
            eprintln!("{}", self.line(&figures, now));
        }
    }

    /// A word besides the progress.
    pub(super) fn say(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{text}"));
        }
    }

    /// Takes the bar off the terminal, which somebody else needs for a while.
    pub(super) fn pause(&self) {
        self.bar.finish_and_clear();
    }

    /// Puts it back.
    pub(super) fn resume(&mut self) {
        self.bar = bar(self.quiet);
        self.began = None;
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, figures: &Figures, now: Mono) -> String {
        let Figures { items, ended, .. } = *figures;
        let rate = self.began.and_then(|(before, since)| {
            let seconds = now.since(since).as_secs_f64();
            let count = u32::try_from(ended.saturating_sub(before)).ok()?;
            (seconds > 0.0 && count > 0).then(|| f64::from(count) / seconds)
        });
        let left = u32::try_from(items - ended.min(items)).unwrap_or(u32::MAX);
        let pace = rate.map_or_else(String::new, |rate| {
            format!(", {rate:.0}/s, {:.0} s left", f64::from(left) / rate)
        });
        format!("{ended} of {items}{pace}; {}", figures.words())
    }
}

/// A bar with its figures below it; hidden where nobody sees it.
fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = "{wide_bar} {pos}/{len} {rate} eta {eta}\n{msg}";
    let style = ProgressStyle::with_template(style).expect("the template is fixed");
    // Its own `per_sec` has four decimals.
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{:.0}/s", state.per_sec());
    };
    ProgressBar::no_length().with_style(style.with_key("rate", rate))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_how_far_how_fast_and_what_came_of_it() {
        let batch = |waiting| {
            json!({
                "items": 100, "waiting": waiting, "leased": 5, "done": 40, "retried": 3,
                "settledByReceipt": 2, "unresolved": 1, "refused": 4, "bad": 1
            })
        };
        let mut progress = Progress::new(true);
        progress.show(&batch(70));
        let (_, since) = progress.began.expect("it has begun");
        let line = progress.line(
            &Figures::of(&batch(50)),
            since.after(Duration::from_secs(2)),
        );
        let expected = "45 of 100, 10/s, 6 s left; done 40, retried 3, by receipt 2, \
                        unresolved 1, refused 4, bad rows 1";
        assert_eq!(line, expected);
    }
}
