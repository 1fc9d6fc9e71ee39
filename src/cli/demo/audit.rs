//! The comparison that the demonstration exists for: what every caller was told, beside what the
//! tool's own books say happened. Pure; both columns go through it unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use super::books::{Books, Item};

/// The last word that the caller of one item has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It was done.
    Done,
    /// The tool refused it for a business reason.
    Refused,
    /// It failed and was not done; the caller gives up.
    Failed,
    /// Nobody knows yet; the gateway's queue has it.
    Open,
    /// No word at all, and nobody who keeps the call.
    Nothing,
}

/// One column of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub calls: u64,
    pub effects: u64,
    /// Items executed more than once, and the effects beyond their first.
    pub twice: u64,
    pub extra_effects: u64,
    /// Items without effect that nobody will do any more, though the tool never refused them.
    pub lost: u64,
    /// Callers who believe something that is not so.
    pub told_wrong: u64,
    /// Items refused by the tool, and told so.
    pub refused: u64,
    /// Items of unknown end, honestly in the queue.
    pub open: u64,
    /// Requests that reached the tool beyond the first of their item.
    pub retries: u64,
    pub receipts_asked: u64,
    /// Dead letters by the state they ended in; a plain client has no such thing.
    pub dead_letters: BTreeMap<String, u64>,
    pub push: Duration,
    /// The wait for the queue afterwards.
    pub queue: Duration,
    /// The first few items that went wrong, for whoever has to find out why.
    pub findings: Vec<String>,
}

/// More would scroll the table off the screen.
const FINDINGS_MAX: usize = 10;

/// One item: its tracking number and what its caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub tracking_no: String,
    pub told: Told,
}

impl Figures {
    /// Holds every account against the books.
    pub(super) fn of(accounts: &[Account], books: &Books) -> Self {
        let mut figures = Self {
            calls: accounts.len() as u64,
            effects: books.effects(),
            retries: books.resends(),
            receipts_asked: books.receipts_asked(),
            ..Self::default()
        };
        for account in accounts {
            figures.enter(account, books.item(&account.tracking_no));
        }
        figures
    }

    /// Whether every call was executed exactly once, refused by the tool, or is honestly open.
    pub(super) fn clean(&self) -> bool {
        self.twice == 0 && self.lost == 0 && self.told_wrong == 0
    }

    fn enter(&mut self, account: &Account, item: Item) {
        let twice = item.effects > 1;
        let (lost, wrong) = (lost(account.told, item), told_wrong(account.told, item));
        self.twice += u64::from(twice);
        self.extra_effects += u64::from(item.effects.saturating_sub(1));
        self.lost += u64::from(lost);
        self.told_wrong += u64::from(wrong);
        self.refused += u64::from(account.told == Told::Refused);
        self.open += u64::from(account.told == Told::Open);
        if (twice || lost || wrong) && self.findings.len() < FINDINGS_MAX {
            self.findings.push(format!(
                "{}: told {:?}; {} arrivals, {} effects, {} refusals",
                account.tracking_no, account.told, item.arrivals, item.effects, item.refusals,
            ));
        }
    }
}

fn lost(told: Told, item: Item) -> bool {
    match told {
        Told::Done | Told::Failed => item.effects == 0,
        Told::Nothing => true,
        Told::Refused | Told::Open => false,
    }
}

fn told_wrong(told: Told, item: Item) -> bool {
    match told {
        Told::Done => item.effects == 0,
        Told::Refused => item.effects > 0 || item.refusals == 0,
        Told::Failed => item.effects > 0,
        Told::Open | Told::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Books with one item `A` that had so many effects and refusals.
    fn books(effects: u32, refusals: u32) -> Books {
        let mut books = Books::default();
        for attempt in 0..effects {
            books.arrive("A");
            books.execute(&format!("id-{attempt}"), "A", "{}");
        }
        for attempt in 0..refusals {
            books.arrive("A");
            books.refuse(&format!("no-{attempt}"), "A", 422, "{}");
        }
        books
    }

    fn check(told: Told, effects: u32, refusals: u32, expected: (u64, u64, u64)) {
        let accounts = [Account {
            tracking_no: "A".to_owned(),
            told,
        }];
        let figures = Figures::of(&accounts, &books(effects, refusals));
        let found = (figures.twice, figures.lost, figures.told_wrong);
        assert_eq!(
            found, expected,
            "{told:?} with {effects} effects, {refusals} refusals"
        );
        assert_eq!(figures.clean(), expected == (0, 0, 0));
        assert_eq!(figures.findings.is_empty(), figures.clean());
    }

    #[test]
    fn every_account_is_held_against_the_books() {
        //                        twice, lost, told wrong
        check(Told::Done, 1, 0, (0, 0, 0));
        check(Told::Done, 0, 0, (0, 1, 1));
        check(Told::Done, 2, 0, (1, 0, 0));
        check(Told::Refused, 0, 1, (0, 0, 0));
        check(Told::Refused, 0, 0, (0, 0, 1));
        check(Told::Refused, 1, 1, (0, 0, 1));
        check(Told::Failed, 0, 0, (0, 1, 0));
        check(Told::Failed, 1, 0, (0, 0, 1));
        check(Told::Failed, 3, 0, (1, 0, 1));
        check(Told::Open, 0, 0, (0, 0, 0));
        check(Told::Open, 1, 0, (0, 0, 0));
        check(Told::Open, 2, 0, (1, 0, 0));
        check(Told::Nothing, 0, 0, (0, 1, 0));
        check(Told::Nothing, 1, 0, (0, 1, 0));
    }

    #[test]
    fn extra_effects_and_totals_come_from_the_books() {
        let accounts = [Account {
            tracking_no: "A".to_owned(),
            told: Told::Done,
        }];
        let mut books = books(4, 0);
        books.ask("id-0");
        let figures = Figures::of(&accounts, &books);
        assert_eq!(
            (figures.calls, figures.effects, figures.extra_effects),
            (1, 4, 3)
        );
        assert_eq!((figures.retries, figures.receipts_asked), (3, 1));
    }

    #[test]
    fn findings_are_bounded() {
        let accounts = vec![
            Account {
                tracking_no: "A".to_owned(),
                told: Told::Nothing
            };
            50
        ];
        let figures = Figures::of(&accounts, &Books::default());
        assert_eq!((figures.lost, figures.findings.len()), (50, FINDINGS_MAX));
    }
}
