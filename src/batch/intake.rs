//! From a file to items in the ledger, each with its call id, before anything of it is sent.
//!
//! A file streams through: what is held is one chunk of items, and eight bytes of every row to see
//! that none comes twice. The batch stays `LOADING`, and nothing of it runs, until the last byte
//! came; a submission that breaks off leaves it so, and the same file under the same name goes on
//! where it stopped, because lines that are there are compared and not written again. Deliberately
//! absent: HTTP, and reading a file from a disk; both come as a reader.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::recipe::{Made, Recipe, Typed};
use super::rows::{BadRow, Format, Row, Rows, Trouble};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::clock::Clock;
use crate::entropy::Minter;
use crate::flow::{Errand, Flow, Route};
use crate::ledger::batch::{
    Added, BatchId, BatchState, BatchView, ItemCall, NewBatch, NewItem, Opened,
};
use crate::ledger::{Ledger, LedgerError, StoredRequest, record};
use crate::telemetry::log::visible;

/// Lines of one batch. Each costs the intake some forty bytes of memory while it reads.
pub const LINES_MAX: u32 = 4_000_000;

/// Items that may run at once, per batch.
pub const WORKERS_MAX: u32 = 256;

/// The longest name of a batch.
pub const NAME_BYTES_MAX: usize = 100;

/// Items written in one record, and bytes of their bodies; calls wait for the same writer.
const CHUNK_ITEMS: usize = 250;
const CHUNK_BYTES: usize = 1 << 20;

/// Submissions read at once; each has a thread.
const SUBMISSIONS_MAX: usize = 4;

/// Bad rows that are told in full; the others are in the export.
const BAD_TOLD_MAX: usize = 20;

/// How long the intake stands back when too many records wait, and how often in a row.
const STAND_BACK: Duration = Duration::from_millis(100);
const STAND_BACKS_MAX: u32 = 600;

/// What takes files in.
pub struct Intake {
    flow: Arc<Flow>,
    minter: Arc<Minter>,
    /// Called when there is something new to run.
    pub(super) news: Arc<Notify>,
    /// Names that are being submitted.
    busy: Mutex<Vec<Arc<str>>>,
}

/// What is submitted besides the rows.
#[derive(Clone, Debug)]
pub struct Order {
    /// The batch's name.
    pub name: String,
    /// The route its items take.
    pub route: String,
    /// Whose calls they are; anonymous unless given.
    pub client: Option<String>,
    /// Items that may run at once.
    pub workers: u32,
    /// Whether one bad row stops all.
    pub strict: bool,
    /// How the rows are written.
    pub format: Format,
    /// What request a row means.
    pub recipe: Typed,
}

/// What a submission came to.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The batch.
    pub batch: BatchView,
    /// Items written now.
    pub new: u64,
    /// Items that were there before.
    pub known: u64,
    /// Rows that cannot be used.
    pub bad: u64,
    /// The first of them.
    pub bad_rows: Vec<BadRow>,
}

/// Why a submission was refused. Each text ends with the next thing to do.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Something that was asked for makes no sense.
    #[error("{0}")]
    Order(String),
    /// No such route.
    #[error("no route is called `{name}`; there are {known}")]
    NoRoute {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The file cannot be read on.
    #[error("{trouble}; {so_far}")]
    File {
        /// Why.
        trouble: Trouble,
        /// What that leaves behind.
        so_far: String,
    },
    /// The name is another batch's.
    #[error("{0}")]
    Taken(String),
    /// A bad row, and `strict`.
    #[error(
        "{count} bad rows, the first: {first}; with `strict` nothing runs: the batch {name} stays \
         LOADING. Correct the file and submit it under another name, or cancel this one"
    )]
    Strict {
        /// The batch.
        name: String,
        /// How many.
        count: u64,
        /// The first.
        first: String,
    },
    /// As many files are read as may be.
    #[error("{SUBMISSIONS_MAX} files are being submitted already; submit this one a little later")]
    Busy,
    /// The ledger cannot be written.
    #[error("{source}; the batch stays LOADING and nothing of it was sent: submit it again")]
    Ledger {
        /// Why.
        #[from]
        source: LedgerError,
    },
}

/// One submission under way.
struct Submission<'a> {
    intake: &'a Intake,
    route: Arc<Route>,
    client: ClientName,
    recipe: Recipe,
    path: String,
    batch: BatchId,
    name: Arc<str>,
    chunk: Vec<NewItem>,
    chunk_bytes: usize,
    /// The beginning of each row's hash, and its line.
    seen: HashMap<u64, u32>,
    done: Submitted,
}

/// A name's place among those that are submitted; given back when this is dropped.
struct Place<'a> {
    intake: &'a Intake,
    name: Arc<str>,
}

impl Intake {
    /// An intake whose ids come from `minter`.
    #[must_use]
    pub fn new(flow: Arc<Flow>, minter: Arc<Minter>) -> Self {
        Self {
            flow,
            minter,
            news: Arc::default(),
            busy: Mutex::default(),
        }
    }

    /// Lets the worker look at once: a batch was turned by hand.
    pub fn turned(&self) {
        self.news.notify_one();
    }

    /// Reads a file into a batch. Blocks: for a thread that may.
    ///
    /// # Errors
    /// Why it was refused; nothing of it runs then that did not run before.
    pub fn take(&self, order: &Order, rows: impl Read) -> Result<Submitted, Refusal> {
        let route = self.route(&order.route)?;
        check_order(order)?;
        let recipe = Recipe::read(&order.recipe).map_err(Refusal::Order)?;
        check_route(&route, &recipe.method)?;
        let path = match &order.recipe.path {
            Some(_) => String::new(),
            None => path_of(&route)?,
        };
        let name: Arc<str> = Arc::from(order.name.as_str());
        let _place = self.place(&name)?;
        let nothing = |trouble| Refusal::File {
            trouble,
            so_far: "nothing was submitted".to_owned(),
        };
        // The beginning of the file is believed before a batch is made of it.
        let mut rows = Rows::open(order.format, rows).map_err(nothing)?;
        if let Some(columns) = rows.columns() {
            recipe.check(columns).map_err(Refusal::Order)?;
        }
        let first = rows.next().map_err(nothing)?;
        let client = order.client.as_deref().map(ClientName::new);
        let client = client.unwrap_or_else(ClientName::anonymous);
        let batch = self.open(order, &name, &client)?;
        let mut submission = Submission {
            intake: self,
            route,
            client,
            recipe,
            path,
            batch: batch.id,
            name,
            chunk: Vec::new(),
            chunk_bytes: 0,
            seen: HashMap::new(),
            done: Submitted {
                batch,
                new: 0,
                known: 0,
                bad: 0,
                bad_rows: Vec::new(),
            },
        };
        submission.read(first, &mut rows)?;
        submission.finish(order.strict)
    }

    fn clock(&self) -> &Clock {
        &self.flow.clock
    }

    fn route(&self, name: &str) -> Result<Arc<Route>, Refusal> {
        self.flow.routes.named(name).cloned().ok_or_else(|| {
            let known = self.flow.routes.iter().map(|route| &*route.conf.name);
            Refusal::NoRoute {
                name: visible(name),
                known: known.collect::<Vec<_>>().join(", "),
            }
        })
    }

    fn place(&self, name: &Arc<str>) -> Result<Place<'_>, Refusal> {
        let mut busy = self.busy.lock();
        if busy.contains(name) {
            return Err(Refusal::Taken(format!(
                "the batch {name} is being submitted by somebody else right now; wait, and submit \
                 it again to join it"
            )));
        }
        if busy.len() >= SUBMISSIONS_MAX {
            tracing::warn!(most = SUBMISSIONS_MAX, "one more submission was refused");
            return Err(Refusal::Busy);
        }
        busy.push(Arc::clone(name));
        drop(busy);
        Ok(Place {
            intake: self,
            name: Arc::clone(name),
        })
    }

    fn open(
        &self,
        order: &Order,
        name: &Arc<str>,
        client: &ClientName,
    ) -> Result<BatchView, Refusal> {
        let new = NewBatch {
            name: Arc::clone(name),
            client: client.clone(),
            route: Arc::from(order.route.as_str()),
            workers: order.workers,
            now: self.clock().wall(),
        };
        match self.flow.ledger.open_batch(new).wait()? {
            Opened::New(view) => Ok(view),
            Opened::Known(view) if view.state == BatchState::Cancelled => Err(cancelled(name)),
            Opened::Known(view) => Ok(view),
            Opened::Other(view) => Err(Refusal::Taken(format!(
                "the batch {name} is there already, for route {} and client {}: take another name",
                view.route,
                view.client.as_str()
            ))),
        }
    }
}

impl Submission<'_> {
    fn read<R: Read>(
        &mut self,
        first: Option<Result<Row, BadRow>>,
        rows: &mut Rows<R>,
    ) -> Result<(), Refusal> {
        let mut next = first;
        while let Some(row) = next {
            let item = self.item(row);
            if item.line > LINES_MAX {
                return Err(self.broken(Trouble::TooManyLines { most: LINES_MAX }));
            }
            self.push(item)?;
            next = rows.next().map_err(|trouble| self.broken(trouble))?;
        }
        self.flush()
    }

    /// The file cannot be read on.
    fn broken(&self, trouble: Trouble) -> Refusal {
        Refusal::File {
            trouble,
            so_far: format!(
                "the batch {} stays LOADING with what came before, and nothing of that runs: \
                 submit the whole file again, or cancel the batch",
                self.name
            ),
        }
    }

    fn item(&mut self, row: Result<Row, BadRow>) -> NewItem {
        let (line, made) = match row {
            Ok(row) => (row.line, self.made(&row)),
            Err(BadRow { line, why }) => (line, Err(why)),
        };
        let (hash, call) = match made {
            Ok((hash, call)) => match self.twin(line, &hash) {
                None => (hash, Ok(call)),
                Some(twin) => {
                    let why = format!(
                        "the same as line {twin}; if both are meant, give them a column that \
                         tells them apart"
                    );
                    (hash, Err(why))
                }
            },
            Err(why) => (hash_of(&[why.as_bytes()]), Err(why)),
        };
        if let Err(why) = &call {
            self.done.bad += 1;
            if self.done.bad_rows.len() < BAD_TOLD_MAX {
                let why = why.clone();
                self.done.bad_rows.push(BadRow { line, why });
            }
        }
        NewItem {
            line,
            hash,
            call: call.map_err(Arc::from),
        }
    }

    /// The earlier line with this content.
    fn twin(&mut self, line: u32, hash: &[u8; 16]) -> Option<u32> {
        let (half, _) = hash.split_at(8);
        let half = u64::from_be_bytes(half.try_into().expect("eight of sixteen bytes"));
        let first = *self.seen.entry(half).or_insert(line);
        (first != line).then_some(first)
    }

    /// The call a row stands for, and what tells its content apart.
    fn made(&self, row: &Row) -> Result<([u8; 16], ItemCall), String> {
        let mut made = self.recipe.make(row, &self.path)?;
        let conf = &self.route.conf;
        let (path, method) = (made.target.path(), &self.recipe.method);
        if !conf.matcher.path.matches(path) {
            let pattern = conf.matcher.path.as_str();
            return Err(format!("the route does not take {path}, only {pattern}"));
        }
        let most = conf.body.max_request;
        if made.body.len() > most {
            let found = made.body.len();
            return Err(format!(
                "its body has {found} bytes, the route takes {most} (body.max_request)"
            ));
        }
        let hash = hash_of(&[
            method.as_str().as_bytes(),
            made.target.as_str().as_bytes(),
            &record::headers_to_text(&made.headers),
            &made.body,
        ]);
        let (call_id, source) = self.call_id(&mut made)?;
        let errand = Errand {
            route: Arc::clone(&self.route),
            client: self.client.clone(),
            call_id,
            source,
            request: StoredRequest {
                method: method.clone(),
                target: Arc::from(made.target.as_str()),
                headers: made.headers,
                body: made.body,
                credential: false,
            },
        };
        let key = self.key(&errand)?;
        let call = ItemCall {
            call_id: errand.call_id,
            source: errand.source,
            key,
            request: errand.request,
        };
        Ok((hash, call))
    }

    /// The row's business key; a row that has none where its route derives one is a bad row.
    fn key(&self, errand: &Errand) -> Result<Option<Arc<str>>, String> {
        let flow = &self.intake.flow;
        let request = flow.errand(errand).map_err(|error| error.to_string())?;
        flow.key_shown(&request).map_err(|problem| problem.detail)
    }

    /// The call id: the row's own where it names one, else a new one. Fixed here for ever.
    fn call_id(&self, made: &mut Made) -> Result<(CallId, IdSource), String> {
        let rule = &self.route.conf.call_id;
        let named = made.headers.remove(&rule.header);
        let named = named.map(|value| value.as_bytes().to_vec()).or_else(|| {
            let place = rule.body.as_ref()?;
            let document: serde_json::Value = serde_json::from_slice(&made.body).ok()?;
            let id = document.pointer(place.as_str())?.as_str()?;
            Some(id.as_bytes().to_vec())
        });
        match named {
            Some(id) => {
                let parsed = CallId::parse(&id);
                let parsed = parsed.map_err(|why| format!("its call id cannot be used: {why}"))?;
                Ok((parsed, IdSource::Client))
            }
            None => {
                let now = self.intake.clock().wall();
                Ok((
                    self.intake.minter.mint(&rule.prefix, now),
                    IdSource::Gateway,
                ))
            }
        }
    }

    fn push(&mut self, item: NewItem) -> Result<(), Refusal> {
        if let Ok(call) = &item.call {
            self.chunk_bytes += call.request.body.len();
        }
        self.chunk.push(item);
        if self.chunk.len() >= CHUNK_ITEMS || self.chunk_bytes >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the chunk; waits when calls wait as well.
    fn flush(&mut self) -> Result<(), Refusal> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.chunk_bytes = 0;
        let ledger: &dyn Ledger = &*self.intake.flow.ledger;
        let mut stood_back = 0;
        let added = loop {
            let now = self.intake.clock().wall();
            match ledger.add_items(self.batch, now, chunk.clone()).wait() {
                Err(error) if error.is_overload() && stood_back < STAND_BACKS_MAX => {
                    stood_back += 1;
                    std::thread::park_timeout(STAND_BACK);
                }
                added => break added?,
            }
        };
        match added {
            Added::Applied { new, known } => {
                self.done.new += u64::from(new);
                self.done.known += u64::from(known);
                Ok(())
            }
            Added::Differs(line) => Err(Refusal::Taken(format!(
                "the batch {} is there already, and line {line} differs from what was submitted \
                 under this name before; nothing more was taken. Take another name for another \
                 file",
                self.name
            ))),
            Added::Closed => Err(cancelled(&self.name)),
        }
    }

    /// The last byte came.
    fn finish(mut self, strict: bool) -> Result<Submitted, Refusal> {
        if strict && let Some(first) = self.done.bad_rows.first() {
            return Err(Refusal::Strict {
                name: self.name.to_string(),
                count: self.done.bad,
                first: format!("line {}: {}", first.line, first.why),
            });
        }
        let (ledger, now) = (&self.intake.flow.ledger, self.intake.clock().wall());
        let loaded = ledger.batch_loaded(self.batch, now).wait()?;
        self.done.batch = loaded.ok_or_else(|| cancelled(&self.name))?;
        let Submitted {
            batch,
            new,
            known,
            bad,
            ..
        } = &self.done;
        let (name, route) = (&*batch.name, &*batch.route);
        tracing::info!(
            batch = name,
            route,
            new,
            known,
            bad,
            "a batch was submitted"
        );
        self.intake.news.notify_one();
        Ok(self.done)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.intake.busy.lock().retain(|name| *name != self.name);
    }
}

fn cancelled(name: &str) -> Refusal {
    Refusal::Taken(format!(
        "the batch {name} was cancelled and takes nothing more: take another name"
    ))
}

fn check_order(order: &Order) -> Result<(), Refusal> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let name = &order.name;
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(Refusal::Order(format!(
            "`{}` is no name for a batch: 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -",
            visible(name)
        )));
    }
    if !(1..=WORKERS_MAX).contains(&order.workers) {
        return Err(Refusal::Order(format!("`workers` is 1 to {WORKERS_MAX}")));
    }
    Ok(())
}

fn check_route(route: &Route, method: &Method) -> Result<(), Refusal> {
    let conf = &route.conf;
    if !conf.effects.is_once(method) {
        return Err(Refusal::Order(format!(
            "{method} on route {} has no effects (`effects: none`), so there is nothing that a \
             batch would keep from happening twice: use another method, or another tool",
            conf.name
        )));
    }
    let methods = conf.matcher.methods.as_deref();
    if methods.is_some_and(|methods| !methods.contains(method)) {
        return Err(Refusal::Order(format!(
            "route {} does not take {method} (match.methods): give the method",
            conf.name
        )));
    }
    Ok(())
}

/// The path of a route whose requests all have the same.
fn path_of(route: &Route) -> Result<String, Refusal> {
    let pattern = route.conf.matcher.path.as_str();
    if pattern.contains('{') {
        return Err(Refusal::Order(format!(
            "route {} takes many paths ({pattern}): give one, with columns in braces, such as \
             --path '/track/{{no}}'",
            route.conf.name
        )));
    }
    let plain = pattern.strip_suffix("/**").unwrap_or(pattern);
    Ok(if plain.is_empty() { "/" } else { plain }.to_owned())
}

/// Lengths go in as well, so that no byte can move from one part to the next.
fn hash_of(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let whole: [u8; 32] = hash.finalize().into();
    let (half, _) = whole.split_at(16);
    half.try_into().expect("16 of 32 bytes")
}
