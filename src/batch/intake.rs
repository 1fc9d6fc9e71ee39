//! From a file to items in the ledger, each with its call id, before anything of it is sent.
//!
//! A file streams through: what is held is one chunk of items, and eight bytes of every row to see
//! that none comes twice. The batch stays `LOADING`, and nothing of it runs, until the last byte
//! came; a submission that breaks off leaves it so, and the same file under the same name goes on
//! where it stopped, because lines that are there are compared and not written again. Deliberately
//! absent: HTTP, and reading a file from a disk; both come as a reader.

mod refusal;
mod submission;

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

pub use refusal::Refusal;
use submission::Submission;

use super::recipe::{Recipe, Typed};
use super::rows::{BadRow, Format, Rows};
use crate::call::id::ClientName;
use crate::clock::Clock;
use crate::entropy::Minter;
use crate::flow::{Flow, Route};
use crate::ledger::batch::{BatchId, BatchState, BatchView, NewBatch, Opened};
use crate::telemetry::log::visible;

/// Lines of one batch. Each costs the intake some forty bytes of memory while it reads.
pub const LINES_MAX: u32 = 4_000_000;

/// Items that may run at once, per batch.
pub const WORKERS_MAX: u32 = 256;

/// The longest name of a batch.
pub const NAME_BYTES_MAX: usize = 100;

/// Submissions read at once; each has a thread.
const SUBMISSIONS_MAX: usize = 4;

/// Those who wait for a name that somebody submits under already, and how long each does: the
/// largest file takes minutes.
const WAITING_MAX: usize = 8;
const JOIN_WITHIN: Duration = Duration::from_secs(600);

/// The runs of the worker, by their batch.
pub(super) type Runs = Arc<Mutex<HashMap<BatchId, Going>>>;

/// A run that goes on.
#[derive(Clone, Default)]
pub(super) struct Going {
    /// Stops it.
    pub(super) stop: CancellationToken,
    /// Its calls that are under way.
    pub(super) calls: Arc<AtomicUsize>,
}

/// What takes files in.
pub struct Intake {
    flow: Arc<Flow>,
    minter: Arc<Minter>,
    /// Called when there is something new to run.
    pub(super) news: Arc<Notify>,
    /// The runs of the worker.
    pub(super) runs: Runs,
    /// Names that are being submitted.
    busy: Mutex<Vec<Arc<str>>>,
    /// A name was given back.
    freed: Notify,
    /// Room for those who wait for one.
    waiting: Semaphore,
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

/// A name's place among those that are submitted; given back when this is dropped.
pub struct Place {
    intake: Arc<Intake>,
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
            runs: Runs::default(),
            busy: Mutex::default(),
            freed: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }

    /// A batch was turned by hand. From here on nothing more of it is begun unless it runs; the
    /// worker looks at once.
    pub fn turned(&self, batch: &BatchView) {
        if batch.state != BatchState::Running
            && let Some(run) = self.runs.lock().get(&batch.id)
        {
            run.stop.cancel();
        }
        self.news.notify_one();
    }

    /// How many calls of a batch are under way in this process.
    #[must_use]
    pub fn running(&self, batch: BatchId) -> usize {
        let runs = self.runs.lock();
        let calls = runs.get(&batch).map(|run| &run.calls);
        calls.map_or(0, |calls| calls.load(Ordering::Relaxed))
    }

    /// A place for a submission under this name. Waits for whoever submits under it already, so
    /// that the same file pushed twice at once is one batch that both have submitted.
    ///
    /// # Errors
    /// When as much is submitted as may be, or the other one does not end.
    pub async fn place(self: &Arc<Self>, name: &str) -> Result<Place, Refusal> {
        let name: Arc<str> = Arc::from(name);
        let until = self.clock().mono().after(JOIN_WITHIN);
        let mut room = None;
        loop {
            // Made before the look: what is given back in between is heard.
            let freed = self.freed.notified();
            if let Some(place) = self.free_place(&name)? {
                return Ok(place);
            }
            if room.is_none() {
                room = Some(self.waiting.try_acquire().map_err(|_| too_many())?);
            }
            tokio::select! {
                () = freed => {}
                () = self.clock().sleep_until(until) => return Err(Refusal::Taken(format!(
                    "somebody else has been submitting the batch {} for {} s; submit it again to \
                     join it",
                    visible(&name),
                    JOIN_WITHIN.as_secs()
                ))),
            }
        }
    }

    /// Reads a file into the batch whose name has this place. Blocks: for a thread that may.
    ///
    /// # Errors
    /// Why it was refused; nothing of it runs then that did not run before.
    pub fn take(
        &self,
        order: &Order,
        place: &Place,
        rows: impl Read,
    ) -> Result<Submitted, Refusal> {
        let route = self.route(&order.route)?;
        check_order(order)?;
        let client = self.client(order.client.as_deref())?;
        let recipe = Recipe::read(&order.recipe).map_err(Refusal::Order)?;
        check_route(&route, &recipe.method)?;
        let path = match &order.recipe.path {
            Some(_) => String::new(),
            None => path_of(&route)?,
        };
        let name = Arc::clone(&place.name);
        let nothing = |trouble| Refusal::File {
            trouble,
            so_far: "nothing was submitted".to_owned(),
        };
        // The beginning of the file is believed before a batch is made of it.
        let mut rows = Rows::open(order.format, rows).map_err(nothing)?;
        if let Some(columns) = rows.columns() {
            recipe.check(columns).map_err(Refusal::Order)?;
        }
        let first = rows.row().map_err(nothing)?;
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
        self.flow.routes.named(name).ok_or_else(|| {
            let routes = self.flow.routes.all();
            let known = routes.iter().map(|route| &*route.conf.name);
            Refusal::NoRoute {
                name: visible(name),
                known: known.collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// Whose calls they are. A name nobody has would be a scope of its own, in which everything is
    /// sent once more.
    fn client(&self, named: Option<&str>) -> Result<ClientName, Refusal> {
        let clients = &self.flow.clients;
        let known = clients.all();
        if known.is_empty() {
            return Ok(named.map_or_else(ClientName::anonymous, ClientName::new));
        }
        let listed = named.and_then(|name| clients.listed(name));
        listed.ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(ClientName::as_str).collect();
            let known = known.join(", ");
            Refusal::Order(match named {
                Some(name) => format!(
                    "no client is called `{}`, so nothing was submitted; there are {known}",
                    visible(name)
                ),
                None => format!("say whose calls these are (`client`); there are {known}"),
            })
        })
    }

    /// A place under this name; `None` while somebody else has it.
    fn free_place(self: &Arc<Self>, name: &Arc<str>) -> Result<Option<Place>, Refusal> {
        let mut busy = self.busy.lock();
        if busy.contains(name) {
            return Ok(None);
        }
        if busy.len() >= SUBMISSIONS_MAX {
            return Err(too_many());
        }
        busy.push(Arc::clone(name));
        drop(busy);
        Ok(Some(Place {
            intake: Arc::clone(self),
            name: Arc::clone(name),
        }))
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

impl Drop for Place {
    fn drop(&mut self) {
        self.intake.busy.lock().retain(|name| *name != self.name);
        self.intake.freed.notify_waiters();
    }
}

fn too_many() -> Refusal {
    tracing::warn!(most = SUBMISSIONS_MAX, "one more submission was refused");
    Refusal::Busy
}

fn cancelled(name: &str) -> Refusal {
    Refusal::Taken(format!(
        "the batch {name} was cancelled and takes nothing more: take another name"
    ))
}

fn check_order(order: &Order) -> Result<(), Refusal> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let name = &order.name;
    // A command would take one that begins with a dash for an option, and an address swallow dots.
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !begins || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(Refusal::Order(format!(
            "`{}` is no name for a batch: 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -, and neither \
             . nor - first",
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
