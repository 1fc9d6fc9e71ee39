//! Files of rows: whoever pushes one, perhaps again, and perhaps under another name; the product's
//! own worker works them off. What is held at the end: a row is one call under one id for ever, has
//! one effect, and its item says what became of that call.
//!
//! The intake's reading of a file is not here: rows come as items, with an id that is made anew for
//! every push, as the intake makes it.

use std::sync::Arc;

use callgate::batch::{Intake, Worker};
use callgate::call::id::{CallId, ClientName, IdSource};
use callgate::call::time::Mono;
use callgate::ledger::batch::{
    Added, BatchView, Batches, ItemCall, ItemState, ItemView, NewBatch, NewItem, Opened,
};
use callgate::ledger::{LedgerError, StoredRequest};
use http::{HeaderMap, HeaderValue, Method};
use tokio_util::sync::CancellationToken;

use crate::check::Heard;
use crate::dice::Dice;
use crate::gateway::Gateway;
use crate::plan::{Rules, Script};
use crate::world::State;

/// Parts this sequence of draws from the others, so that worlds without files stay as they were.
const FILES: u64 = 0xf11e_5000;
/// Items of one record: a push breaks off between two of them.
const CHUNK: usize = 2;
/// The most rows that are looked at; there are a handful.
const ROWS_MAX: usize = 100;

/// A file, and how often it is pushed.
#[derive(Clone, Debug)]
pub(crate) struct File {
    name: &'static str,
    rows: Vec<Row>,
    workers: u32,
    begins: u64,
    pushes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Its own call id, if it brings one.
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    /// What it wants done: the body of its request.
    pub(crate) wants: String,
}

/// A push and how far it has come.
pub(crate) struct Pusher {
    file: File,
    next: u64,
    left: u64,
    /// The call ids of its rows, as they were when it was first there.
    ids: Vec<Option<CallId>>,
}

impl File {
    /// The files of a world.
    pub(crate) fn drawn(seed: u64, rules: &Rules, callers: &[Script]) -> Vec<Self> {
        let mut dice = Dice::new(seed ^ FILES);
        let d = &mut dice;
        if rules.none || !d.percent(30) {
            return Vec::new();
        }
        let rows: Vec<Row> = (0..d.within(1, 6))
            .map(|n| Row::drawn(d, n, callers))
            .collect();
        // Another file that shares rows; a row that has neither id nor key would be another call.
        let mut shared = rows.clone();
        shared.retain(|row| row.id.is_some() || row.key.is_some());
        shared.push(Row::plain("again"));
        let mut files = vec![Self::of(d, "night", rows)];
        if d.percent(40) {
            files.push(Self::of(d, "again", shared));
        }
        files
    }

    fn of(d: &mut Dice, name: &'static str, rows: Vec<Row>) -> Self {
        Self {
            name,
            rows,
            workers: d.pick(&[1, 2, 20]),
            begins: d.within(0, 3_000),
            pushes: d.pick(&[1, 1, 2, 3]),
        }
    }
}

impl Row {
    fn drawn(d: &mut Dice, n: u64, callers: &[Script]) -> Self {
        let keyed: Vec<&Script> = callers.iter().filter(|it| it.key.is_some()).collect();
        let row = Self::plain(&n.to_string());
        match d.below(6) {
            0 if !keyed.is_empty() => {
                // What a caller asks for as well.
                let place = d.below(keyed.len() as u64);
                let caller = keyed[usize::try_from(place).expect("an index fits")];
                Self {
                    id: None,
                    key: caller.key.clone(),
                    wants: caller.wants.clone(),
                }
            }
            1 => Self {
                id: Some(format!("row-{n}")),
                ..row
            },
            // Two rows of one business.
            2 => Self {
                key: Some("row-key".to_owned()),
                ..Self::plain("shared")
            },
            3 => Self {
                key: Some(format!("row-key-{n}")),
                ..row
            },
            _ => row,
        }
    }

    fn plain(what: &str) -> Self {
        Self {
            id: None,
            key: None,
            wants: format!("{{\"want\":\"row {what}\"}}"),
        }
    }

    fn item(&self, gateway: &Gateway, line: u32) -> NewItem {
        let (call_id, source) = match &self.id {
            Some(id) => (
                CallId::parse(id.as_bytes()).expect("a plain word is an id"),
                IdSource::Client,
            ),
            None => (
                gateway.minter.mint("sim", gateway.flow.clock.wall()),
                IdSource::Gateway,
            ),
        };
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key {
            let key = HeaderValue::from_str(key).expect("a plain word is a key");
            headers.insert("idempotency-key", key);
        }
        let request = StoredRequest {
            method: Method::POST,
            target: "/work".into(),
            headers,
            body: self.wants.clone().into(),
            credential: false,
        };
        NewItem {
            line,
            hash: [u8::try_from(line).expect("a handful of lines"); 16],
            call: Ok(ItemCall {
                call_id,
                source,
                key: self.key.as_deref().map(Arc::from),
                request,
            }),
        }
    }
}

impl Pusher {
    pub(crate) fn new(file: File) -> Self {
        Self {
            next: file.begins,
            left: file.pushes,
            ids: Vec::new(),
            file,
        }
    }
}

/// Works batches off while a gateway lives, and pushes what is to be pushed.
pub(crate) fn opens(gateway: &Arc<Gateway>) {
    let files = gateway.world.lock().pushers.len();
    if files == 0 {
        return;
    }
    let intake = Intake::new(Arc::clone(&gateway.flow), Arc::clone(&gateway.minter));
    let (flow, core) = (Arc::clone(&gateway.flow), gateway.core.clone());
    let worker = Worker::new(flow, core, &intake, CancellationToken::new());
    drop(tokio::spawn(worker.run()));
    for n in 0..files {
        drop(tokio::spawn(push(Arc::clone(gateway), n)));
    }
}

async fn push(gateway: Arc<Gateway>, n: usize) {
    loop {
        let (file, next) = {
            let state = gateway.world.lock();
            let pusher = &state.pushers[n];
            if pusher.left == 0 {
                return;
            }
            (pusher.file.clone(), pusher.next)
        };
        let at = next.saturating_sub(gateway.base).saturating_mul(1_000_000);
        gateway.flow.clock.sleep_until(Mono(at)).await;
        let submitted = submit(&gateway, &file).await;
        let mut state = gateway.world.lock();
        if !state.touched(gateway.life) {
            return;
        }
        let pause = match submitted {
            // A broken push is made again.
            Err(_) => 500,
            Ok(batch) => {
                let left = &mut state.pushers[n].left;
                *left = left.saturating_sub(1);
                state.truth.reached.at("pushed");
                state.has_its_ids(n, &batch);
                state.dice.pick(&[100, 3_000, 20_000])
            }
        };
        state.pushers[n].next = state.now() + pause;
    }
}

/// What the intake does: the batch, its items in chunks, and that the last one came.
async fn submit(gateway: &Gateway, file: &File) -> Result<BatchView, LedgerError> {
    let (ledger, clock) = (&gateway.flow.ledger, &gateway.flow.clock);
    let new = NewBatch {
        name: file.name.into(),
        client: ClientName::anonymous(),
        route: "tool".into(),
        workers: file.workers,
        now: clock.wall(),
    };
    let batch = match ledger.open_batch(new).await? {
        Opened::New(batch) | Opened::Known(batch) | Opened::Other(batch) => batch,
    };
    let items: Vec<NewItem> = (1..)
        .zip(&file.rows)
        .map(|(line, row)| row.item(gateway, line))
        .collect();
    for chunk in items.chunks(CHUNK) {
        let added = ledger.add_items(batch.id, clock.wall(), chunk.to_vec());
        match added.await? {
            Added::Applied { .. } => {}
            Added::Differs(_) | Added::Closed => {
                let mut state = gateway.world.lock();
                state.breaks("a file pushed again joins its batch", file.name);
            }
        }
    }
    ledger.batch_loaded(batch.id, clock.wall()).await?;
    Ok(batch)
}

impl State {
    fn items_of(&self, batch: &BatchView) -> Vec<ItemView> {
        let items = self.ledger.items(batch.id, None, 0, ROWS_MAX).wait();
        items.expect("memory is always readable")
    }

    fn batch_of(&self, n: usize) -> Option<BatchView> {
        let name = self.pushers[n].file.name;
        let found = self.ledger.batch(name.into()).wait();
        found.expect("memory is always readable")
    }

    /// The ids of a batch's items are what they were when it was first there.
    fn has_its_ids(&mut self, n: usize, batch: &BatchView) {
        let now: Vec<_> = self
            .items_of(batch)
            .into_iter()
            .map(|item| item.call_id)
            .collect();
        let pusher = &mut self.pushers[n];
        if pusher.ids.is_empty() {
            pusher.ids = now;
        } else if pusher.ids != now {
            let what = format!("{}: {now:?}", pusher.file.name);
            self.breaks("an item has one call id for ever", &what);
        }
    }

    /// Whether all is pushed, and every item has ended as far as its call has.
    pub(crate) fn files_are_over(&self) -> bool {
        (0..self.pushers.len()).all(|n| {
            let over = |item: &ItemView| match item.state {
                ItemState::Waiting | ItemState::Leased => false,
                ItemState::Unresolved => !self.has_end(item),
                ItemState::Done | ItemState::Refused | ItemState::Bad | ItemState::Cancelled => {
                    true
                }
            };
            let batch = self.batch_of(n);
            self.pushers[n].left == 0
                && batch.is_some_and(|batch| self.items_of(&batch).iter().all(over))
        })
    }

    /// Whether the call behind an unresolved item is settled.
    fn has_end(&self, item: &ItemView) -> bool {
        self.call_of(item)
            .and_then(|id| self.row(&id))
            .is_some_and(|row| row.settled.is_some())
    }

    /// The id of the call whose end is this item's.
    fn call_of(&self, item: &ItemView) -> Option<String> {
        let id = item.original.as_ref().or(item.call_id.as_ref());
        id.map(ToString::to_string)
    }

    /// Whether a row of some file wants this done under this id.
    pub(crate) fn is_rows(&self, wants: &str, id: &str) -> bool {
        self.rows()
            .any(|row| row.wants == wants && row.id.as_deref().is_none_or(|own| own == id))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.plan.files.iter().flat_map(|file| &file.rows)
    }

    /// Everything that must hold of files when a world has come to its end.
    pub(crate) fn files_hold(&mut self) {
        for n in 0..self.pushers.len() {
            let file = self.pushers[n].file.clone();
            let Some(batch) = self.batch_of(n) else {
                self.breaks("nothing is lost", &format!("the batch {}", file.name));
                continue;
            };
            self.has_its_ids(n, &batch);
            let items = self.items_of(&batch);
            if items.len() != file.rows.len() {
                let what = format!("{} has {} items", file.name, items.len());
                self.breaks("nothing is lost", &what);
            }
            for (row, item) in file.rows.iter().zip(&items) {
                self.row_is_one_call(row);
                self.item_is_true(file.name, item);
            }
        }
    }

    /// Whatever is sent for a row that nobody else wants is one call.
    fn row_is_one_call(&mut self, row: &Row) {
        let mine = |other: &&Row| other.wants == row.wants;
        let shared =
            row.key.is_some() || (row.id.is_none() && self.rows().filter(mine).count() > 1);
        if shared {
            return;
        }
        let sent = self.truth.calls.iter();
        let sent = sent.filter(|(_, facts)| facts.bodies.values().any(|body| *body == row.wants));
        let ids: Vec<String> = sent.map(|(id, _)| id.clone()).collect();
        if ids.len() > 1 {
            self.breaks("a row is one call", &format!("{}: {ids:?}", row.wants));
        }
    }

    /// An item says what became of its call.
    fn item_is_true(&mut self, name: &str, item: &ItemView) {
        let what = format!("{name}:{} {item:?}", item.line);
        let Some(id) = self.call_of(item) else {
            return self.breaks("an item has a call id", &what);
        };
        let outcome = item.outcome.as_deref().unwrap_or_default();
        match item.state {
            ItemState::Done => {
                self.truth.reached.at("item done");
                self.told(&id, Heard::Success);
            }
            ItemState::Refused if matches!(outcome, "answered" | "receipt" | "replayed") => {
                self.truth.reached.at("item refused");
                self.told(&id, Heard::Failure);
            }
            ItemState::Refused => self.truth.reached.at("item refused by the gateway"),
            ItemState::Unresolved => {
                self.truth.reached.at("item unresolved");
                let row = self.row(&id);
                if row.is_none_or(|row| row.dead_letter.is_none()) {
                    self.breaks("an unresolved item has a dead letter", &what);
                }
            }
            ItemState::Waiting | ItemState::Leased | ItemState::Bad | ItemState::Cancelled => {
                self.breaks("everything ends", &what);
            }
        }
        let unknown = item.state == ItemState::Unresolved;
        if self.plan.quiet && unknown {
            self.breaks("where nothing fails everything is answered", &what);
        }
    }
}
