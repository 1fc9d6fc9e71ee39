//! A ledger that only shows what a test put on its shelf; every verb that would change something
//! is refused.

mod batches;
mod desk;

use super::fixture;
use super::*;
use crate::call::alert::Event;
use crate::call::id::{CallId, ClientName};
use crate::ledger::{
    Begun, CallView, Claim, Cursor, DeadLetter, Due, Entry, Fact, FactWritten, Filter, Health,
    Intention, KeyScope, LedgerError, NewCall, Owner, OwnerTest, Page, Pending, Proof, ProofNote,
    Purged, Recovered, RowId, Story, Taker, Tally, Told, Untold, Watch, Written,
};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) calls: Vec<CallView>,
    pub(crate) dead: Vec<DeadLetter>,
    pub(crate) next: Option<Cursor>,
    pub(crate) tally: Vec<Tally>,
    pub(crate) audit: Vec<crate::ledger::desk::AuditLine>,
    pub(crate) differing: Vec<crate::ledger::desk::Differing>,
    pub(crate) jobs: Vec<crate::ledger::desk::job::Job>,
    pub(crate) overloaded: bool,
    pub(crate) failing: Mutex<Option<Arc<str>>>,
    /// What was asked for last.
    pub(crate) asked: Mutex<Option<(Filter, Option<Cursor>, usize)>>,
}

impl Shelf {
    fn read<T: Clone>(&self, what: &T) -> Pending<T> {
        let overloaded = LedgerError::Overloaded { waiting: 7 };
        Pending::ready(if self.overloaded {
            Err(overloaded)
        } else {
            Ok(what.clone())
        })
    }
}

fn refused<T>() -> Pending<T> {
    Pending::ready(Err(LedgerError::Closed))
}

impl Ledger for Shelf {
    fn view(&self, client: Option<ClientName>, call_id: CallId) -> Pending<Vec<CallView>> {
        let meant = |call: &&CallView| {
            call.call_id == call_id && client.as_ref().is_none_or(|name| *name == call.client)
        };
        self.read(&self.calls.iter().filter(meant).cloned().collect())
    }
    fn dead_letters(&self, filter: Filter, from: Option<Cursor>, limit: usize) -> Pending<Page> {
        *self.asked.lock() = Some((filter, from, limit));
        self.read(&Page {
            items: self.dead.clone(),
            next: self.next,
        })
    }
    fn tally(&self) -> Pending<Vec<Tally>> {
        self.read(&self.tally)
    }
    fn knows_since(&self) -> Wall {
        Wall(1_793_534_400_000)
    }
    fn health(&self) -> Health {
        Health {
            failing: self.failing.lock().clone(),
            waiting: 0,
            capacity: 16,
        }
    }
    fn knows(
        &self,
        _: ClientName,
        _: Option<CallId>,
        _: Option<(Arc<str>, Arc<KeyScope>)>,
    ) -> Pending<bool> {
        refused()
    }
    fn begin(&self, _: NewCall) -> Pending<Begun> {
        refused()
    }
    fn append(&self, _: Claim, _: Wall, _: Intention) -> Pending<Written> {
        refused()
    }
    fn fact(&self, _: Fact) -> Pending<FactWritten> {
        refused()
    }
    fn recognise(&self, _: RowId, _: u32) -> Pending<()> {
        refused()
    }
    fn note(&self, _: RowId, _: u32, _: Vec<Entry>) {}
    fn claim_letter(
        &self,
        _: RowId,
        _: u32,
        _: (Taker, Owner),
        _: Wall,
        _: Wall,
    ) -> Pending<Option<Due>> {
        refused()
    }
    fn dossier(&self, _: RowId) -> Pending<Option<Due>> {
        refused()
    }
    fn claim_due(&self, _: Owner, _: Wall, _: Wall, _: usize) -> Pending<Vec<Due>> {
        refused()
    }
    fn extend(&self, _: Claim, _: Wall) -> Pending<Written> {
        refused()
    }
    fn recover(&self, _: Owner, _: Wall, _: OwnerTest) -> Pending<Recovered> {
        refused()
    }
    fn remember_proof(&self, _: Arc<str>, _: Proof, _: Wall) -> Pending<()> {
        refused()
    }
    fn stories(&self, client: Option<ClientName>, name: Arc<str>) -> Pending<Vec<Story>> {
        let meant = |call: &&CallView| {
            call.call_id.as_str() == &*name
                && client.as_ref().is_none_or(|client| *client == call.client)
        };
        let told: Vec<_> = self
            .calls
            .iter()
            .filter(meant)
            .map(fixture::story)
            .collect();
        self.read(&told)
    }
    fn untold(&self, _: Arc<[Watch]>) -> Pending<Untold> {
        refused()
    }
    fn fold_alerts(&self, _: Arc<[Watch]>, _: Wall, _: usize) -> Pending<bool> {
        refused()
    }
    fn alert_told(&self, _: Arc<str>, _: Event, _: Told, _: Wall) -> Pending<()> {
        refused()
    }
    fn proofs(&self) -> Pending<Vec<ProofNote>> {
        refused()
    }
    fn purge(&self, _: Wall, _: usize) -> Pending<Purged> {
        refused()
    }
    fn close(&self) -> Pending<()> {
        Pending::ready(Ok(()))
    }
}
