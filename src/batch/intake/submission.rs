//! One submission: rows become items, written chunk by chunk.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Intake, LINES_MAX, Refusal, Submitted, cancelled};
use crate::batch::recipe::{Made, Recipe};
use crate::batch::rows::{BadRow, Row, Rows, Trouble};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::flow::{Errand, Route};
use crate::ledger::batch::{Added, BatchId, ItemCall, NewItem};
use crate::ledger::{Ledger, StoredRequest, record};

/// Items written in one record, and bytes of their bodies; calls wait for the same writer.
const CHUNK_ITEMS: usize = 250;
const CHUNK_BYTES: usize = 1 << 20;

/// Bad rows that are told in full; the others are in the export.
const BAD_TOLD_MAX: usize = 20;

/// How long the intake stands back when too many records wait, and how often in a row.
const STAND_BACK: Duration = Duration::from_millis(100);
const STAND_BACKS_MAX: u32 = 600;

/// One submission under way.
pub(super) struct Submission<'a> {
    pub(super) intake: &'a Intake,
    pub(super) route: Arc<Route>,
    pub(super) client: ClientName,
    pub(super) recipe: Recipe,
    pub(super) path: String,
    pub(super) batch: BatchId,
    pub(super) name: Arc<str>,
    pub(super) chunk: Vec<NewItem>,
    pub(super) chunk_bytes: usize,
    /// The beginning of each row's hash, and its line.
    pub(super) seen: HashMap<u64, u32>,
    pub(super) done: Submitted,
}

impl Submission<'_> {
    pub(super) fn read<R: Read>(
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
            next = rows.row().map_err(|trouble| self.broken(trouble))?;
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
            seen_at: self.intake.clock().wall(),
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
    pub(super) fn finish(mut self, strict: bool) -> Result<Submitted, Refusal> {
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
