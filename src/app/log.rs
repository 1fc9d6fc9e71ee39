//! The log of the process, as the configuration has it.

use std::sync::Arc;

use super::error::StartError;
use crate::clock::Clock;
use crate::config::resolved::{self, LogFormat, LogLevel};
use crate::telemetry::log::{self, Format, Log, Setup};
use crate::telemetry::metrics::Metrics;

/// Opens the log; `overriding` is the value of [`log::LEVEL_VARIABLE`].
pub(super) fn open(
    config: resolved::Log,
    overriding: Option<String>,
    clock: &Clock,
    metrics: &Metrics,
) -> Result<Log, StartError> {
    let level = match config.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let format = match config.format {
        LogFormat::Auto => Format::Auto,
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    let clock = clock.clone();
    let opened = log::open(Setup {
        level: level.to_owned(),
        format,
        overriding,
        now: Arc::new(move || clock.wall()),
        dropped: Some(metrics.log_lines_dropped.clone()),
    });
    Ok(opened?)
}
