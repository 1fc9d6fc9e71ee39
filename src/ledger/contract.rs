//! What every ledger promises, as one suite: a function per promise, run against each ledger.
//!
//! The functions take a factory and wait inline, so that they say nothing about threads and
//! runtimes; what only a file can do wrong is tested beside `sqlite`.

pub(super) mod addresses;
pub(super) mod alerts;
pub(super) mod aliases;
pub(super) mod batches;
pub(super) mod claims;
pub(super) mod desk;
pub(super) mod facts;
pub(super) mod intentions;
pub(super) mod jobs;
pub(super) mod keeping;
pub(super) mod lists;
mod model;
pub(super) mod names;
pub(super) mod reversal;
pub(super) mod rounds;
pub(super) mod stories;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::{
    Begun, CallView, Claim, DeadLetter, DeadState, Due, Fact, FactWritten, Filter, Intention, Kept,
    KeyScope, Known, Ledger, NewCall, News, Owner, Park, Place, Reply, StoredRequest, Verdict,
    Written,
};
use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::call::receipt::State;
use crate::call::time::Wall;

/// A ledger under test and what it needs to live.
pub(super) struct World {
    pub(super) ledger: Arc<dyn Ledger>,
    /// The folder of its file, removed with it.
    pub(super) _folder: Option<tempfile::TempDir>,
}

/// Makes an empty ledger whose ended dead letters stay for [`RETENTION`].
pub(super) type Factory = fn() -> World;

pub(super) const NOW: Wall = Wall(1_700_000_000_000);
pub(super) const RETENTION: Duration = Duration::from_secs(30 * 86_400);
pub(super) const WINDOW: Duration = Duration::from_secs(86_400);
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// Runs the whole suite against the ledgers of a factory, one test per promise.
macro_rules! suite {
    ($factory:expr; $($part:ident { $($promise:ident,)* })*) => {
        $($(
            #[test]
            fn $promise() {
                crate::ledger::contract::$part::$promise($factory);
            }
        )*)*
    };
    ($factory:expr) => {
        crate::ledger::contract::suite! { $factory;
            claims {
                an_id_is_claimed_once_by_64_racing_callers,
                a_repeat_is_told_the_call_and_whether_it_is_the_same,
                a_settled_call_is_replayed_until_its_window_is_over,
                c26_racers_after_the_window_make_one_claim,
                a_replay_makes_the_window_run_anew,
                an_unresolved_call_never_expires,
                a_released_id_lives_again,
                a_key_belongs_to_one_call,
                a_key_is_freed_by_a_definite_refusal_and_kept_by_success,
                an_expired_key_is_claimed_anew,
                keys_are_apart_by_client_and_route,
                another_client_cannot_use_an_id_at_the_same_upstream,
                everything_that_was_stored_comes_back,
            }
            addresses {
                a_call_moves_to_another_address_in_the_step_that_sends_it,
                another_client_cannot_use_an_id_at_a_sibling_address,
                an_undone_id_is_never_sent_to_any_address_of_its_tool,
            }
            aliases {
                a_joining_id_stands_for_the_first_call,
                a_joining_id_with_another_request_or_key_is_another_request,
                a_repeat_without_a_key_is_the_same_request,
                a_mismatch_under_a_taken_key_leaves_no_alias,
                who_joined_a_refused_call_is_told_its_end_and_the_next_one_runs,
                a_joining_id_is_free_when_the_first_call_is_forgotten,
                a_joining_id_of_an_earlier_life_is_free,
                a_joining_id_goes_with_its_call_and_belongs_to_its_client,
            }
            batches {
                nothing_of_a_batch_runs_before_its_last_item_came,
                a_name_is_one_batch_of_one_client_and_route,
                the_same_lines_are_not_added_twice_and_others_are_refused,
                items_are_claimed_in_order_and_once,
                an_item_ends_once_and_the_last_one_ends_the_batch,
                a_dead_owners_items_are_claimed_again_under_the_same_ids,
                a_paused_batch_begins_nothing_new,
                a_cancelled_batch_ends_what_was_not_begun,
                an_unresolved_item_follows_its_call,
                an_unresolved_item_follows_a_call_of_its_clients_former_name,
                a_batch_stays_for_its_retention_and_while_it_is_open,
            }
            names {
                routes_with_one_scope_share_their_keys,
                a_key_survives_the_renaming_of_its_route_and_client,
                a_key_that_two_former_names_hold_is_the_first_ones,
                a_call_id_survives_the_renaming_of_its_client,
                a_joining_id_survives_the_renaming_of_its_client,
                a_renamed_client_is_nobody_else,
                who_is_wary_is_told_of_the_same_request_in_the_queue,
                nobody_is_wary_of_what_is_over_or_of_others,
                the_wary_come_after_id_and_key,
                a_call_is_known_by_its_id_an_alias_or_its_key,
            }
            facts {
                a_clean_call_needs_two_records,
                an_unbinding_answer_frees_id_and_key,
                a_receipt_settles_with_or_without_a_reply,
                a_terminal_state_is_never_overwritten,
                a_difference_is_recorded_once_per_kind,
                a_fact_needs_no_claim,
                a_fact_ends_a_dead_letter,
                a_fact_about_an_earlier_life_changes_nothing,
                a_refusal_of_an_attempt_sent_again_settles_nothing,
                a_body_too_large_to_keep_leaves_its_digest,
                headers_come_back_byte_for_byte,
            }
            intentions {
                a_send_is_counted_only_in_order,
                a_stale_claim_writes_nothing,
                a_settled_call_takes_no_intention,
                parking_is_one_step,
                a_never_sent_call_ends_and_frees_its_names,
                a_parked_call_takes_no_send_from_the_line,
                a_heartbeat_extends_only_the_current_lease,
                history_is_kept_in_order,
            }
            rounds {
                due_calls_are_claimed_in_order_and_once,
                a_round_carries_everything_it_needs,
                what_the_tool_has_recognised_is_remembered,
                what_was_told_in_part_is_never_sent_again,
                a_repeat_leases_what_waits_in_the_queue_and_moves_nothing,
                an_abandoned_round_is_claimed_by_another,
                rounds_are_counted_in_the_row,
                what_a_pass_could_not_send_is_still_never_sent,
                the_last_round_ends_in_front_of_a_human,
                a_released_round_is_due_as_before,
                a_round_may_send_under_its_claim,
                a_crash_parks_what_was_sent_and_closes_what_was_not,
                a_shared_ledger_recovers_only_what_ran_out,
            }
            reversal {
                what_was_undone_keeps_its_names_as_long_as_its_row,
                a_reversal_ends_every_send_of_the_original,
                an_unclear_reversal_is_due_again_as_the_same_request,
                a_done_reversal_ends_the_call_and_keeps_its_names,
                a_fact_after_a_reversal_began_is_a_difference,
                a_reversal_goes_on_after_a_crash,
                what_an_operator_borrows_goes_back_to_the_human,
                an_id_its_client_undid_is_never_sent,
                an_undone_id_is_remembered_as_long_as_dead_letters,
                a_dossier_is_read_without_a_claim,
            }
            keeping {
                what_is_over_goes_and_what_is_unresolved_stays,
                a_replayed_call_is_purged_later,
                an_ended_dead_letter_stays_for_its_retention,
                dead_letters_are_listed_by_every_filter,
                pages_meet_without_gap_or_overlap,
                open_dead_letters_are_tallied,
                proofs_are_remembered,
                a_closed_ledger_says_so,
                the_ledger_knows_since_when,
            }
            alerts {
                a_row_is_taken_into_an_alert_once,
                a_round_that_ends_in_front_of_a_human_is_taken_too,
                a_difference_is_taken_once_per_kind,
                what_comes_up_in_the_window_is_held_for_the_next_alert,
                a_failed_delivery_is_kept_with_its_tries,
                the_oldest_open_call_is_told_by_route,
                many_rows_are_taken_in_pieces,
            }
            stories {
                a_call_is_found_by_its_id_an_alias_and_its_key,
                earlier_lives_of_an_id_are_told,
                an_earlier_dead_letter_stays_in_the_story,
                calls_that_may_be_the_same_are_named,
                an_id_of_several_clients_has_several_stories,
            }
            desk {
                a_resolved_call_is_settled_by_an_operator_with_a_line,
                success_by_hand_keeps_the_key_and_failure_frees_it,
                a_decision_made_twice_is_made_once,
                a_discarded_call_is_unknown_though_it_was_never_sent,
                a_decision_needs_a_dead_letter_that_nobody_works_on,
                a_discarded_call_stays_unknown_and_is_never_sent,
                what_was_given_up_is_forgotten_after_the_retention,
                a_key_is_released_only_where_nothing_is_sent_again,
                an_order_is_noted_before_and_completed_after,
            }
            lists {
                the_last_receipt_stands_in_the_row,
                dead_letters_stand_in_every_order_and_pages_meet,
                dead_letters_are_found_by_text_and_by_a_set_of_states,
                differences_are_listed_newest_first_with_what_was_recorded,
                differences_are_filtered_and_their_pages_meet,
                a_sample_is_spread_over_all_that_match,
            }
            jobs {
                the_rows_of_a_job_are_fixed_when_it_is_made,
                who_wants_the_same_joins_the_running_job,
                a_job_of_nothing_is_none_and_there_are_only_so_many,
                an_item_is_taken_once_and_ended_once,
                what_a_dead_process_began_is_taken_again_and_first,
                a_cancelled_job_begins_nothing_any_more,
                an_ended_job_is_forgotten_after_the_retention,
            }
        }
    };
}
pub(super) use suite;

pub(super) fn id(text: &str) -> CallId {
    CallId::parse(text.as_bytes()).unwrap()
}

/// An ordinary call: first send noted, no key.
pub(super) fn call(text: &str) -> NewCall {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    NewCall {
        client: ClientName::anonymous(),
        call_id: id(text),
        source: IdSource::Client,
        route: "orders".into(),
        siblings: Arc::default(),
        upstream: "http://tool:9000".into(),
        policy: "policy one".into(),
        fingerprint: Fingerprint([7; 32]),
        idempotency_key: None,
        scope: scope("orders", &[]),
        wary: false,
        business_key: None,
        request: StoredRequest {
            method: Method::POST,
            target: "/orders?x=1".into(),
            headers,
            body: Bytes::from_static(b"{\"n\":1}"),
            credential: false,
        },
        trace: None,
        owner: owner("one"),
        lease_until: NOW.after(LEASE),
        now: NOW,
        window: WINDOW,
        first_send: true,
        promised: false,
        exclusive_id: true,
        reverses: None,
    }
}

/// A scope with the names it had before.
pub(super) fn scope(name: &str, formerly: &[&str]) -> Arc<KeyScope> {
    Arc::new(KeyScope {
        name: name.into(),
        formerly: formerly.iter().map(|name| (*name).into()).collect(),
    })
}

pub(super) fn keyed(text: &str, key: &str) -> NewCall {
    NewCall {
        idempotency_key: Some(key.into()),
        ..call(text)
    }
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::new(name)
}

fn secs(n: u64) -> Wall {
    NOW.after(Duration::from_secs(n))
}

fn reply(status: u16) -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert("x-status", HeaderValue::from(status));
    Reply {
        status: StatusCode::from_u16(status).unwrap(),
        headers,
        body: Kept::Whole(Bytes::from(format!("body of {status}"))),
    }
}

pub(super) fn answer(status: u16) -> News {
    News::Answer {
        n: 1,
        reply: reply(status),
        success: status < 400,
    }
}

fn unbinding(status: u16) -> News {
    News::Unbinding {
        n: 1,
        reply: reply(status),
    }
}

fn receipt(verdict: Verdict) -> News {
    News::Receipt {
        verdict,
        reply: None,
        document: Some(Bytes::from_static(b"{}")),
    }
}

pub(super) fn queued(due: Wall) -> Intention {
    Intention::Park(park(Place::Queued { due }))
}

fn park(place: Place) -> Park {
    Park {
        reason: "timeout".into(),
        place,
        reached: place != Place::NeverSent,
        last_error: "no answer within 8s".into(),
        kept: None,
    }
}

impl World {
    fn begin(&self, new: NewCall) -> Begun {
        self.ledger.begin(new).wait().unwrap()
    }

    fn claim(&self, new: NewCall) -> Claim {
        match self.begin(new) {
            Begun::Claimed(claim) => claim,
            other => panic!("expected a claim, got {other:?}"),
        }
    }

    fn known(&self, new: NewCall) -> Known {
        match self.begin(new) {
            Begun::Known(known) => *known,
            other => panic!("expected a known call, got {other:?}"),
        }
    }

    fn append(&self, claim: Claim, now: Wall, intention: Intention) -> Written {
        self.ledger.append(claim, now, intention).wait().unwrap()
    }

    fn applied(&self, claim: Claim, now: Wall, intention: Intention) {
        assert_eq!(self.append(claim, now, intention), Written::Applied);
    }

    fn fact(&self, claim: Claim, now: Wall, news: News) -> FactWritten {
        let Claim { row, life, .. } = claim;
        self.ledger
            .fact(Fact {
                row,
                life,
                now,
                entries: Vec::new(),
                news,
            })
            .wait()
            .unwrap()
    }

    fn settled(&self, claim: Claim, now: Wall, news: News) {
        assert_eq!(self.fact(claim, now, news), FactWritten::Applied);
    }

    /// A call that is parked at `NOW` and due then.
    fn dead(&self, text: &str) -> Claim {
        let claim = self.claim(call(text));
        self.applied(claim, NOW, queued(NOW));
        claim
    }

    /// The same of one of which nothing has reached the tool.
    fn unsent(&self, text: &str) -> Claim {
        let claim = self.claim(call(text));
        let how = Park {
            reached: false,
            ..park(Place::Queued { due: NOW })
        };
        self.applied(claim, NOW, Intention::Park(how));
        assert_eq!(self.view(text).state, State::Received);
        claim
    }

    fn due(&self, who: &str, now: Wall, limit: usize) -> Vec<Due> {
        self.ledger
            .claim_due(owner(who), now, now.after(LEASE), limit)
            .wait()
            .unwrap()
    }

    /// The one round that is due.
    fn round(&self, who: &str, now: Wall) -> Due {
        let mut due = self.due(who, now, 9);
        assert_eq!(due.len(), 1);
        due.remove(0)
    }

    fn view(&self, text: &str) -> CallView {
        let mut found = self.ledger.view(None, id(text)).wait().unwrap();
        assert_eq!(found.len(), 1, "{text}");
        found.remove(0)
    }

    fn is_gone(&self, text: &str) -> bool {
        self.ledger.view(None, id(text)).wait().unwrap().is_empty()
    }

    fn letter(&self, text: &str) -> DeadLetter {
        self.view(text)
            .dead_letter
            .expect("the call has a dead letter")
    }

    fn listed(&self, filter: Filter) -> Vec<String> {
        let page = self.ledger.dead_letters(filter, None, 100).wait().unwrap();
        assert_eq!(page.next, None);
        page.items
            .iter()
            .map(|item| item.call_id.to_string())
            .collect()
    }
}
