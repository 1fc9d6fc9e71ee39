//! `callgate batch export`: every item of a batch, written as it comes.
//!
//! A million items are never held: a table is laid out in pieces, a document is written item by
//! item, and the rest is passed on as the gateway writes it.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use super::ExportArgs;
use crate::cli::client::Target;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{self, Column, Output, Printer};
use crate::cli::push::BATCHES;
use crate::cli::push::wire::Link;

const COLUMNS: &[Column] = &[
    ("LINE", "line"),
    ("STATE", "state"),
    ("CALL ID", "callId"),
    ("KEY", "key"),
    ("ATTEMPTS", "attempts"),
    ("STATUS", "status"),
    ("OUTCOME", "outcome"),
    ("ERROR", "error"),
];

/// What of a document is written at once.
const PIECE_BYTES: usize = 64 << 10;

/// Items of a table that are laid out together, under a heading of their own.
const TABLE_ITEMS: usize = 1_000;

/// Writes the items in the form asked for; as CSV when none was, since an export is for a file.
pub(super) async fn run(
    link: &Link<'_>,
    args: &ExportArgs,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let form = args.form.or_else(|| printer.asked()).unwrap_or(Output::Csv);
    let format = match form {
        Output::Csv => "csv",
        Output::Table | Output::Json | Output::Ndjson => "ndjson",
    };
    let target = Target::new(BATCHES)
        .segment(&args.name)
        .segment("export")
        .with("format", Some(format))
        .with("state", args.state.as_deref());
    let body = link.stream(&target).await?;
    match form {
        Output::Csv | Output::Ndjson => pass_on(body, printer).await?,
        Output::Json => document(body, printer).await?,
        Output::Table => table(body, printer).await?,
    }
    Ok(Exit::Ok)
}

async fn pass_on(mut body: Incoming, printer: &mut Printer<'_>) -> Result<(), Failure> {
    while let Some(piece) = piece(&mut body).await? {
        printer.bytes(&piece)?;
    }
    Ok(())
}

async fn document(body: Incoming, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut lines = Lines::of(body);
    let mut text = "{\"items\":[".to_owned();
    let mut between = "\n";
    while let Some(item) = lines.next().await? {
        text += &format!("{between}{item}");
        between = ",\n";
        if text.len() > PIECE_BYTES {
            printer.bytes(std::mem::take(&mut text).as_bytes())?;
        }
    }
    printer.text(&(text + "\n],\"next\":null}\n"))?;
    Ok(())
}

async fn table(body: Incoming, printer: &mut Printer<'_>) -> Result<(), Failure> {
    let mut lines = Lines::of(body);
    let mut any = false;
    loop {
        let mut items = Vec::new();
        while items.len() < TABLE_ITEMS
            && let Some(item) = lines.next().await?
        {
            items.push(item);
        }
        if items.is_empty() {
            break;
        }
        printer.text(&output::rows(&items, COLUMNS))?;
        any = true;
    }
    if !any {
        eprintln!("No item matches.");
    }
    Ok(())
}

/// The documents of an answer that has one a line.
struct Lines {
    body: Incoming,
    /// What came and was not read yet.
    held: BytesMut,
}

impl Lines {
    fn of(body: Incoming) -> Self {
        Self {
            body,
            held: BytesMut::new(),
        }
    }

    async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let line = self.held.split_to(end + 1);
                let item = serde_json::from_slice(&line);
                return item.map(Some).map_err(|error| broken(&error));
            }
            match piece(&mut self.body).await? {
                Some(piece) => self.held.extend_from_slice(&piece),
                None if self.held.is_empty() => return Ok(None),
                None => return Err(broken(&"its last line has no end")),
            }
        }
    }
}

async fn piece(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn broken(why: &dyn std::fmt::Display) -> Failure {
    Failure::Other(anyhow::anyhow!(
        "the export broke off ({why}); what was written is not all of it"
    ))
}
