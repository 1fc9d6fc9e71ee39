//! Properties of the in-line machine over random schedules of answers, silences and late words.

use proptest::prelude::*;

use super::*;

/// A world that answers the machine's steps at random, as the real driver would.
struct World {
    driven: Driven,
    open: Vec<u8>,
    sends: u32,
    clean: bool,
    asked_not_found: bool,
}

fn random_policy(bits: u8) -> Policy {
    let unknown = bits & 1 != 0;
    let mut made = with_retry(|n| {
        n.max_retries = (bits >> 4) % 6;
        if unknown {
            n.resend_on = ResendOn::NotFoundOrUnknown;
        }
    });
    if bits & 2 != 0 {
        made.receipt = None;
    }
    if bits & 4 != 0 {
        made.on_client_gone = OnClientGone::Cancel;
    }
    made.compensation.resend = bits & 8 != 0;
    made
}

impl World {
    /// One event that can follow `step`, chosen by `roll`.
    fn next(&mut self, step: Step, roll: u8) -> Event {
        if roll.is_multiple_of(7) && !self.open.is_empty() && step != Step::CloseEarlier {
            let n = self.open.remove(0);
            let status = StatusCode::from_u16([200, 422, 500, 429][usize::from(roll / 64)]);
            return match roll % 2 {
                0 => Event::LateAnswer {
                    n,
                    reading: Reading::by_status(status.unwrap()),
                },
                _ => Event::LateEnded { n },
            };
        }
        match step {
            Step::Send { n, .. } => self.attempt(n, roll),
            Step::Ask => self.answer(roll),
            Step::Wait(d) => {
                self.driven.pass(d);
                Event::Waited
            }
            Step::CloseEarlier => {
                self.open.clear();
                Event::Closed
            }
            Step::Keep
            | Step::PassHead(_)
            | Step::Answer(_)
            | Step::Park(_)
            | Step::Reverse { .. } => unreachable!(),
        }
    }

    fn attempt(&mut self, n: u8, roll: u8) -> Event {
        let bound = self.driven.machine.attempt_bound(self.driven.now);
        if roll % 16 == 5 {
            // What is not sent now was not permitted for later.
            (self.sends, self.asked_not_found) = (self.sends - 1, false);
            return Event::HeldBack;
        }
        self.driven.pass(bound.mul_f64(f64::from(roll) / 255.0));
        let outcome = match roll % 8 {
            0 => answered(200),
            1 => answered(422),
            2 => answered(429),
            3 | 4 => answered(503),
            5 => REFUSED,
            6 => CUT,
            _ => Outcome::Unclear(Unclear::Timeout),
        };
        let open = outcome == Outcome::Unclear(Unclear::Timeout) && roll & 16 != 0;
        if open {
            self.open.push(n);
        }
        let unclear = matches!(
            outcome,
            Outcome::Unclear(_) | Outcome::Answered(Reading::Kept(_))
        );
        if unclear {
            self.clean = false;
            self.asked_not_found = false;
        }
        Event::Attempted {
            outcome,
            retry_after: None,
            open,
        }
    }

    fn answer(&mut self, roll: u8) -> Event {
        self.driven.pass(Duration::from_millis(u64::from(roll)));
        match roll % 8 {
            0 => state(State::Success),
            1 => state(State::Failed),
            2 => state(State::Processing),
            3 | 4 => state(State::Unknown),
            _ => {
                self.asked_not_found = true;
                NOT_FOUND
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn every_schedule_ends_within_its_sends_and_resends_only_after_not_found(
        bits in any::<u8>(),
        rolls in proptest::collection::vec(any::<u8>(), 600),
    ) {
        let made = random_policy(bits);
        let (max, unknown) = (u32::from(made.retry.max_retries()), bits & 1 != 0);
        let mut world = World {
            driven: Driven { machine: Machine::new(Arc::new(made), Mono(0)), now: Mono(0) },
            open: Vec::new(), sends: 0, clean: true, asked_not_found: false,
        };
        let mut event = Event::Begun;
        let mut step = Step::Keep;
        let mut ended = false;
        for roll in rolls {
            let deadline = world.driven.machine.deadline();
            let in_flight = matches!(step, Step::Send { .. });
            let late = world.driven.now >= deadline && !in_flight && step != Step::Keep;
            let told = world.driven.on(if late { Event::DeadlinePassed } else { event });
            if told != Step::Keep {
                step = told;
            }
            match step {
                Step::Send { n, .. } if told != Step::Keep => {
                    world.sends += 1;
                    prop_assert_eq!(u32::from(n), world.sends);
                    prop_assert!(world.sends <= 1 + max);
                    prop_assert!(world.clean || world.asked_not_found || unknown);
                }
                Step::Answer(_) => ended = true,
                Step::Park(parking) => {
                    prop_assert_ne!(parking.reason, Reason::Impossible);
                    ended = true;
                }
                _ => {}
            }
            if ended { break; }
            event = world.next(step, roll);
        }
        prop_assert!(ended, "the call did not end: {:?}", world.driven.machine);
    }
}
