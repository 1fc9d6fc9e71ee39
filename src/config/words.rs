//! The words of the configuration for our enums: one table each, read by the reader, the schema
//! and the printer alike.

use super::limits::Adaptive;
use super::resolved::{LogFormat, LogLevel, Sync};
use super::route::{
    Accepted, Credentials, DetectNewIds, HostMode, KeyHash, Protocol, ResponseMode, UpstreamKind,
};
use crate::call::alert::Event;
use crate::call::outcome::Cause;
use crate::call::policy::{BelieveNotFound, OnClientGone, OnFailed, Records, UnresolvedAnswer};

/// An enum whose variants are words in the file.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// The words, in the order of the documentation.
    const NAMES: &'static [&'static str];
    /// The variants, in the same order.
    const VARIANTS: &'static [Self];

    /// The variant a word names.
    fn from_word(word: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|name| *name == word)?;
        Some(Self::VARIANTS[at])
    }

    /// The word of this variant; `None` for one that is written by leaving the key out.
    fn word(self) -> Option<&'static str> {
        let at = Self::VARIANTS.iter().position(|variant| *variant == self)?;
        Some(Self::NAMES[at])
    }
}

macro_rules! words {
    ($($kind:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {$(
        impl Word for $kind {
            const NAMES: &'static [&'static str] = &[$($word),+];
            const VARIANTS: &'static [Self] = &[$(Self::$variant),+];
        }
    )+};
}

words! {
    LogLevel { Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace" }
    LogFormat { Auto = "auto", Text = "text", Json = "json" }
    Sync { Full = "full", Normal = "normal" }
    HostMode { Tool = "tool", Keep = "keep" }
    Protocol { Http1 = "http1", Http2 = "http2", Auto = "auto" }
    UpstreamKind { Tool = "tool", Callgate = "callgate" }
    Credentials { Forward = "forward", None = "none" }
    Accepted { Final = "final", Pending = "pending" }
    DetectNewIds { Warn = "warn", Block = "block" }
    KeyHash { Sha256 = "sha256", Md5 = "md5", Plain = "none" }
    ResponseMode { Auto = "auto", Stream = "stream", Collect = "collect" }
    Cause { Connect = "connect", Timeout = "timeout", Disconnect = "disconnect", Status = "5xx" }
    Adaptive { Off = "off", Aimd = "aimd" }
    BelieveNotFound { Proven = "proven", Always = "always" }
    OnClientGone { Finish = "finish", Cancel = "cancel" }
    OnFailed { Drop = "drop", Keep = "keep" }
    Event { Manual = "manual", Reversed = "reversed", Difference = "difference" }
    Records { Arrival = "arrival", Commit = "commit" }
    UnresolvedAnswer { Problem = "problem", Upstream = "upstream" }
}
