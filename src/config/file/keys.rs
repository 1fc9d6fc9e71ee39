//! Every key of the file, in one table: name, kind of value, meaning.
//!
//! The strict reader, the suggestions for misspelt keys and the JSON Schema are all read off this
//! table, so none of them can know a key the others do not. Deliberately absent: default values,
//! which are code (`defaults`), and rules between keys, which are checks (`build`).

use crate::call::alert::Event;
use crate::call::outcome::Cause;
use crate::call::policy::{
    BelieveNotFound, MAX_RETRIES_MAX, OnClientGone, OnFailed, Records, UnresolvedAnswer,
};
use crate::config::limits::Adaptive;
use crate::config::resolved::{LogFormat, LogLevel, Sync};
use crate::config::route::{
    Accepted, Credentials, DetectNewIds, HostMode, KeyHash, Protocol, ResponseMode, UpstreamKind,
};
use crate::config::words::Word;

/// One key of a section.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// Whether it must be there.
    pub must: bool,
    /// What it means, in one sentence.
    pub doc: &'static str,
}

/// What a value must be.
#[derive(Debug)]
pub enum Kind {
    /// Text, described for the operator.
    Text(&'static str),
    /// Text that is never shown.
    Secret(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A number.
    Number {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// A duration with its unit.
    Duration {
        /// Whether zero makes sense.
        zero: bool,
    },
    /// A size with its unit, in bytes.
    Size {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// One of these numbers.
    OneOf(&'static [u64]),
    /// A list.
    List {
        /// What each element must be.
        of: &'static Self,
        /// The fewest elements.
        min: usize,
        /// The most elements.
        max: usize,
    },
    /// A map with names of the operator's own.
    Named(&'static Self),
    /// A map with these keys.
    Section(&'static [Key]),
    /// The same, but its presence alone means something, so it must be written as a map.
    Presence(&'static [Key]),
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The most elements of a list of names.
const NAMES_MAX: usize = 64;
/// The most clients. A request's key is compared with every one of theirs.
const CLIENTS_MAX: usize = 256;
/// The most routes; a hundred times what a gateway of one team has.
const ROUTES_MAX: usize = 1_000;

const LONGER_THAN_ZERO: Kind = Kind::Duration { zero: false };
const MAYBE_ZERO: Kind = Kind::Duration { zero: true };
const SOCKET: Kind = Kind::Text("an address and port, such as 127.0.0.1:8080");
const HEADER: Kind = Kind::Text("the name of a header field");
const POINTER: Kind = Kind::Text("a JSON pointer, such as /state");
const RATE: Kind = Kind::Text("requests per second or minute, such as 100/s or 600/m");
const HEADERS: Kind = Kind::List {
    of: &HEADER,
    min: 0,
    max: NAMES_MAX,
};
/// More renamings than a route or client goes through in the longest window.
const FORMER_NAMES: Kind = Kind::List {
    of: &Kind::Text("a name it had before"),
    min: 0,
    max: 16,
};
const WORDS: Kind = Kind::List {
    of: &Kind::Text("a state word of the tool"),
    min: 0,
    max: NAMES_MAX,
};

macro_rules! keys {
    ($(
        $(#[$about:meta])* $vis:vis $section:ident {
            $($(#[doc = $doc:literal])+ $name:ident: $kind:expr $(, $must:ident)?;)+
        }
    )+) => {$(
        $(#[$about])*
        $vis const $section: &[Key] = &[$(Key {
            name: stringify!($name),
            kind: $kind,
            must: must!($($must)?),
            doc: concat!($($doc),+),
        }),+];
    )+};
}

macro_rules! must {
    () => {
        false
    };
    (must) => {
        true
    };
}

mod limits;
mod policy;
mod receipt;
mod route;
mod server;

use limits::*;
use policy::*;
use receipt::*;
use route::*;
use server::*;

keys! {
    /// The top of the file.
    pub ROOT {
        /// This gateway's name, the last part of the call ids it makes; the host name when not set.
        node: Kind::Text("a name of 1 to 48 letters, digits, `.`, `_` and `-`");
        /// What is logged and how.
        log: Kind::Section(LOG);
        /// Cores that serve calls; 0 = all.
        workers: Kind::Whole { min: 0, max: 1_024 };
        /// Where callers connect.
        listen: SOCKET;
        /// Bounds of one caller's connection.
        limits: Kind::Section(LIMITS);
        /// The operator's listener.
        admin: Kind::Section(ADMIN);
        /// Where calls are recorded before they are sent.
        ledger: Kind::Section(LEDGER);
        /// How the process leaves.
        drain: Kind::Section(DRAIN);
        /// The callers and their keys; with none listed every caller is `anonymous`.
        clients: Kind::List { of: &Kind::Section(CLIENT), min: 0, max: CLIENTS_MAX };
        /// What every route inherits, key by key.
        defaults: Kind::Section(DEFAULTS);
        /// The routes; the first that matches takes the request.
        routes: Kind::List { of: &Kind::Section(ROUTE), min: 1, max: ROUTES_MAX }, must;
    }
}
