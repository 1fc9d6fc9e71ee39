//! `callgate dead list`, and the filters that `bulk` shares.

use serde_json::{Map, Value, json};

use super::{LETTERS, ages};
use crate::call::time::Wall;
use crate::cli::client::Target;
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{Column, Printer};
use crate::clock::Clock;

/// For a terminal: what decides first, and what may be long last.
const COLUMNS: &[Column] = &[
    ("CALL ID", "call_id"),
    ("STATE", "state"),
    ("AGE", "age"),
    ("NEXT", "next"),
    ("ROUND", "round"),
    ("ROUTE", "route"),
    ("RECEIPT", "last_receipt"),
    ("REASON", "reason"),
    ("LAST ERROR", "last_error"),
    ("CLIENT", "client"),
];

/// A spreadsheet's columns: first what an office asks for, then the rest of the row.
const WIDE: &[&str] = &[
    "business_key",
    "request_id",
    "last_error",
    "fail_count",
    "next_retry_time",
    "create_time",
    "call_id",
    "state",
    "route",
    "client",
    "reason",
    "last_receipt",
    "round",
    "ended_at",
];

/// Whose calls they are when no clients are configured.
const ANONYMOUS: &str = "anonymous";

/// Rows of one question; a longer list is asked for page by page.
const PAGE: u32 = 1_000;

/// Which dead letters are meant: every option that is given must match.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Which dead letters")]
pub(super) struct FilterArgs {
    /// Only in this state, such as QUEUED or MANUAL
    #[arg(long)]
    state: Option<String>,
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
    /// Only of this client
    #[arg(long)]
    client: Option<String>,
    /// Only parked longer ago than this, such as 15m or 2h
    #[arg(long, value_name = "AGE")]
    older_than: Option<String>,
    /// Only whose last error or reason holds this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only whose receipt said this last, such as NOT_FOUND or PROCESSING
    #[arg(long, value_name = "ANSWER")]
    receipt: Option<String>,
    /// Only with this idempotency key or business key
    #[arg(long)]
    key: Option<String>,
    /// Only with this text in the call id, a key, the reason or the last error
    #[arg(long)]
    text: Option<String>,
}

/// `callgate dead list`
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// In this order: oldest, newest, due (next round first), fails (most failed first)
    #[arg(long, value_name = "ORDER")]
    sort: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100, value_parser = rows())]
    limit: u32,
    /// Go on after the page that ended here
    #[arg(long)]
    cursor: Option<String>,
}

impl FilterArgs {
    fn members(&self) -> [(&'static str, Option<&str>); 8] {
        [
            ("state", self.state.as_deref()),
            ("route", self.route.as_deref()),
            ("client", self.client.as_deref()),
            ("older_than", self.older_than.as_deref()),
            ("error", self.error.as_deref()),
            ("receipt", self.receipt.as_deref()),
            ("key", self.key.as_deref()),
            ("text", self.text.as_deref()),
        ]
    }

    /// The filter as the body of a job has it.
    pub(super) fn document(&self) -> Value {
        let given = self.members().into_iter();
        let given = given.filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        Value::Object(given.collect::<Map<_, _>>())
    }
}

/// How many rows a list may have.
pub(super) fn rows() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

/// Asks for a list page by page, until it ends or `limit` is reached.
pub(super) fn pages(
    gateway: &Gateway,
    target: impl Fn() -> Target,
    limit: u32,
    cursor: Option<&str>,
) -> Result<Value, Failure> {
    let mut items: Vec<Value> = Vec::new();
    let mut next = cursor.map(str::to_owned);
    loop {
        let left = limit.saturating_sub(u32::try_from(items.len()).unwrap_or(u32::MAX));
        let target = target()
            .with("limit", Some(&left.clamp(1, PAGE).to_string()))
            .with("cursor", next.as_deref());
        let mut page = gateway.document(&target)?;
        if let Some(found) = page["items"].as_array_mut() {
            items.append(found);
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() || items.len() >= limit as usize {
            return Ok(json!({ "items": items, "next": next }));
        }
    }
}

/// Says on standard error what a list does not show.
pub(super) fn hint(page: &Value, nothing: &str) {
    if page["items"].as_array().is_none_or(Vec::is_empty) {
        eprintln!("{nothing}");
    }
    if let Some(next) = page["next"].as_str() {
        eprintln!("There are more: add --cursor {next}");
    }
}

/// Adds how old each row is and when its next round comes. The columns worth showing: whose calls
/// they are is none where callers have no names.
fn dated(page: &mut Value, now: Wall) -> &'static [Column] {
    let mut named = false;
    for row in page["items"].as_array_mut().into_iter().flatten() {
        row["age"] = ages::age(&row["create_time"], now).into();
        row["next"] = ages::until(&row["next_retry_time"], now).into();
        named |= row["client"] != ANONYMOUS;
    }
    if named {
        COLUMNS
    } else {
        &COLUMNS[..COLUMNS.len() - 1]
    }
}

pub(super) fn run(
    args: &ListArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let target = || {
        let filter = args.filter.members().into_iter();
        let filtered = filter.fold(Target::new(LETTERS), |target, (name, value)| {
            target.with(name, value)
        });
        filtered.with("sort", args.sort.as_deref())
    };
    let mut page = pages(gateway, target, args.limit, args.cursor.as_deref())?;
    if printer.is_table() {
        let columns = dated(&mut page, Clock::start().wall());
        printer.list(&page, columns, WIDE)?;
    } else {
        printer.list(&page, COLUMNS, WIDE)?;
    }
    hint(&page, "No dead letter matches.");
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output;

    #[test]
    fn a_list_says_how_old_and_how_long_and_hides_nameless_clients() {
        let row = |id: &str, client: &str, next: Value| {
            json!({
                "call_id": id, "state": "QUEUED", "route": "orders", "client": client, "round": 1,
                "reason": "deadline", "last_receipt": "NOT_FOUND", "last_error": "timeout",
                "create_time": "2026-11-01T12:00:00.000Z", "next_retry_time": next,
            })
        };
        let now = Wall(
            "2026-11-01T12:12:00Z"
                .parse::<jiff::Timestamp>()
                .unwrap()
                .as_millisecond(),
        );
        let soon = json!("2026-11-01T12:20:30.000Z");
        let shown = |mut page: Value| {
            let columns = dated(&mut page, now);
            output::rows(page["items"].as_array().unwrap(), columns)
        };
        let nameless = [row("a", ANONYMOUS, soon), row("b", ANONYMOUS, Value::Null)];
        let expected = "\
CALL ID  STATE   AGE  NEXT   ROUND  ROUTE   RECEIPT    REASON    LAST ERROR
a        QUEUED  12m  in 8m  1      orders  NOT_FOUND  deadline  timeout
b        QUEUED  12m  -      1      orders  NOT_FOUND  deadline  timeout
";
        assert_eq!(shown(json!({ "items": nameless })), expected);
        let named = shown(json!({ "items": [row("a", "billing", Value::Null)] }));
        assert!(
            named.contains("  CLIENT\n") && named.contains("  billing\n"),
            "{named}"
        );
    }
}
