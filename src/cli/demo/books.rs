//! The tool's own books: what really happened, by business item and by call id. They are the only
//! source of the figures that the demonstration shows; neither client is asked how well it did.
//! Deliberately absent: any deduplication. A second send is a second effect, as with most tools.

use std::collections::HashMap;

use serde_json::{Value, json};

/// One item of business: a tracking number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Item {
    /// Requests for it that were read.
    pub arrivals: u32,
    /// Times its work was done.
    pub effects: u32,
    /// Times it was refused for a business reason.
    pub refusals: u32,
}

/// What the tool has to say about one call id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receipt {
    pub state: State,
    /// Effects under this call id.
    pub effects: u32,
    /// Status and body of the answer, once there is one.
    pub result: Option<(u16, String)>,
}

/// The states that this tool knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Processing,
    Success,
    Failed,
}

/// A place in the books for an arriving request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Which arrival of its item this is (1, 2, ..).
    pub attempt: u32,
    /// How many distinct items have arrived so far.
    pub seen: u32,
}

/// The books of one tool.
#[derive(Debug, Default)]
pub(super) struct Books {
    items: HashMap<String, Item>,
    calls: HashMap<String, Receipt>,
    receipts_asked: u64,
}

impl Books {
    /// A request for the item was read.
    pub(super) fn arrive(&mut self, tracking_no: &str) -> Arrival {
        let item = self.items.entry(tracking_no.to_owned()).or_default();
        item.arrivals += 1;
        let attempt = item.arrivals;
        Arrival {
            attempt,
            seen: self.items.len() as u32,
        }
    }

    /// Work for the call has begun. A receipt that has ended does not fall back.
    pub(super) fn begin(&mut self, call_id: &str) {
        self.receipt(call_id);
    }

    /// The work is done: effect and receipt in one step.
    pub(super) fn execute(&mut self, call_id: &str, tracking_no: &str, body: &str) {
        self.items
            .entry(tracking_no.to_owned())
            .or_default()
            .effects += 1;
        let receipt = self.receipt(call_id);
        receipt.effects += 1;
        receipt.state = State::Success;
        receipt.result = Some((200, body.to_owned()));
    }

    /// The call is refused for a business reason; an effect already there is not denied.
    pub(super) fn refuse(&mut self, call_id: &str, tracking_no: &str, status: u16, body: &str) {
        self.items
            .entry(tracking_no.to_owned())
            .or_default()
            .refusals += 1;
        let receipt = self.receipt(call_id);
        if receipt.state != State::Success {
            receipt.state = State::Failed;
            receipt.result = Some((status, body.to_owned()));
        }
    }

    /// Somebody asks what became of a call.
    pub(super) fn ask(&mut self, call_id: &str) -> Option<&Receipt> {
        self.receipts_asked += 1;
        self.calls.get(call_id)
    }

    /// The page of one item; an item that never arrived has an empty one.
    pub(super) fn item(&self, tracking_no: &str) -> Item {
        self.items.get(tracking_no).copied().unwrap_or_default()
    }

    /// Requests beyond the first of their item.
    pub(super) fn resends(&self) -> u64 {
        self.items
            .values()
            .map(|item| u64::from(item.arrivals.saturating_sub(1)))
            .sum()
    }

    pub(super) fn effects(&self) -> u64 {
        self.items
            .values()
            .map(|item| u64::from(item.effects))
            .sum()
    }

    pub(super) fn receipts_asked(&self) -> u64 {
        self.receipts_asked
    }

    /// The totals, for `GET /books`.
    pub(super) fn summary(&self) -> Value {
        let arrived: u64 = self
            .items
            .values()
            .map(|item| u64::from(item.arrivals))
            .sum();
        let twice = self.items.values().filter(|item| item.effects > 1).count();
        let refusals: u64 = self
            .items
            .values()
            .map(|item| u64::from(item.refusals))
            .sum();
        let ids_twice = self
            .calls
            .values()
            .filter(|receipt| receipt.effects > 1)
            .count();
        json!({
            "requests": arrived, "items": self.items.len(), "effects": self.effects(),
            "itemsExecutedTwice": twice, "callIdsExecutedTwice": ids_twice,
            "refusals": refusals, "receiptsAsked": self.receipts_asked,
        })
    }

    fn receipt(&mut self, call_id: &str) -> &mut Receipt {
        self.calls.entry(call_id.to_owned()).or_insert(Receipt {
            state: State::Processing,
            effects: 0,
            result: None,
        })
    }
}

impl Receipt {
    /// The document of `GET /receipts/{callId}`, in the form that callgate reads without mapping.
    pub(super) fn document(&self, call_id: &str) -> Value {
        let state = match self.state {
            State::Processing => "PROCESSING",
            State::Success => "SUCCESS",
            State::Failed => "FAILED",
        };
        let result = self.result.as_ref().map(|(status, body)| {
            json!({
                "status": status, "headers": {"content-type": "application/json"},
                "body": body, "bodyEncoding": "utf8",
            })
        });
        json!({"callId": call_id, "state": state, "result": result})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_counted_by_item_and_by_call() {
        let mut books = Books::default();
        assert_eq!(
            books.arrive("A"),
            Arrival {
                attempt: 1,
                seen: 1
            }
        );
        books.execute("id-1", "A", "{}");
        assert_eq!(
            books.arrive("B"),
            Arrival {
                attempt: 1,
                seen: 2
            }
        );
        assert_eq!(
            books.arrive("A"),
            Arrival {
                attempt: 2,
                seen: 2
            }
        );
        books.execute("id-2", "A", "{}");
        assert_eq!(
            books.item("A"),
            Item {
                arrivals: 2,
                effects: 2,
                refusals: 0
            }
        );
        assert_eq!(
            books.item("B"),
            Item {
                arrivals: 1,
                effects: 0,
                refusals: 0
            }
        );
        assert_eq!((books.effects(), books.resends()), (2, 1));
        assert_eq!(books.ask("id-1").map(|receipt| receipt.effects), Some(1));
        assert_eq!(books.summary()["itemsExecutedTwice"], 1);
        assert_eq!(books.summary()["callIdsExecutedTwice"], 0);
    }

    #[test]
    fn a_receipt_is_truthful_at_every_moment() {
        let mut books = Books::default();
        assert_eq!(books.ask("id"), None);
        books.begin("id");
        assert_eq!(
            books.ask("id").expect("begun").document("id")["state"],
            "PROCESSING"
        );
        books.execute("id", "A", "{\"ok\":1}");
        books.begin("id");
        let document = books.ask("id").expect("done").document("id");
        assert_eq!(document["state"], "SUCCESS");
        assert_eq!(document["callId"], "id");
        assert_eq!(document["result"]["status"], 200);
        assert_eq!(document["result"]["body"], "{\"ok\":1}");
        assert_eq!(books.receipts_asked(), 3);
    }

    #[test]
    fn a_refusal_is_a_failed_receipt_with_its_status_and_no_effect() {
        let mut books = Books::default();
        books.refuse("id", "A", 422, "{}");
        let document = books.ask("id").expect("refused").document("id");
        assert_eq!(
            (&document["state"], &document["result"]["status"]),
            (&json!("FAILED"), &json!(422))
        );
        assert_eq!(
            books.item("A"),
            Item {
                arrivals: 0,
                effects: 0,
                refusals: 1
            }
        );
        books.execute("other", "A", "{}");
        books.refuse("other", "A", 422, "{}");
        assert_eq!(
            books.ask("other").map(|receipt| receipt.state),
            Some(State::Success)
        );
    }
}
