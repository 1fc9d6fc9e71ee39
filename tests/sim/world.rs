//! One world: its time, its events, and everything that outlives a crash of the gateway.
//!
//! The gateway's tasks live in a runtime that is dropped when it crashes; tool, network, disk and
//! callers are plain data here and go on. Time is in milliseconds since the world began. Every
//! touch of the world by the gateway is a place where it can die: from then on nothing it does
//! takes effect any more.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use callgate::call::time::{Mono, Wall};
use callgate::clock::{Clock, WallStep};
use callgate::ledger::RowId;
use callgate::ledger::memory::MemoryLedger;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::callers::Caller;
use crate::check::Truth;
use crate::dice::Dice;
use crate::disk::Disk;
use crate::files::Pusher;
use crate::jobs::Bulk;
use crate::net::{Asked, Net, Sent};
use crate::plan::Plan;
use crate::tool::{Run, Tool};

/// When every world begins.
pub(crate) const EPOCH: Wall = Wall(1_790_000_000_000);

#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) story: Story,
    pub(crate) ledger: Arc<MemoryLedger>,
    pub(crate) disk: Disk,
    pub(crate) net: Net,
    pub(crate) tool: Tool,
    pub(crate) callers: Vec<Caller>,
    pub(crate) pushers: Vec<Pusher>,
    pub(crate) truth: Truth,
    /// Calls about which an operator has ordered something.
    pub(crate) ordered: BTreeSet<(RowId, u32)>,
    /// Which life of the gateway this is, from 1.
    pub(crate) life: u32,
    pub(crate) crash: Arc<Notify>,
    pub(crate) sooner: Arc<Notify>,
    /// What must not be dropped before the gateway is gone.
    pub(crate) keep: Vec<Box<dyn Any + Send>>,
    clock: Option<Clock>,
    step: Option<WallStep>,
    /// How far the wall clock was stepped.
    stepped: i64,
    base: u64,
    alive: bool,
    dies_at_touch: Option<(u64, bool)>,
    /// How far its bulk jobs are.
    pub(crate) bulk: Bulk,
    /// Items of jobs that were taken up again after a crash.
    pub(crate) bulk_again: Arc<AtomicU64>,
    events: BinaryHeap<Reverse<(u64, u64, Slot)>>,
    count: u64,
}

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request reaches the tool.
    Arrives(Sent),
    /// A question reaches the receipt endpoint.
    Asks(Asked),
    /// A request to undo a call reaches the tool.
    Undoes(Asked),
    /// The tool's work is done.
    Commits(Run),
    /// Bytes of the tool reach the gateway.
    Bytes(usize, Vec<u8>),
    /// The tool's end of a connection reaches the gateway; a reset or not.
    Ends(usize, bool),
    /// The kernel has room again.
    Window(usize),
    /// The tool is tired of an idle connection.
    Idles(usize, u64),
    /// The disk has written.
    Written,
    /// The wall clock is stepped by so many ms.
    Steps(i64),
}

/// Orders nothing: the number before it does.
#[derive(Debug)]
struct Slot(Event);

#[derive(Default)]
pub(crate) struct Story {
    pub(crate) told: bool,
    pub(crate) lines: Vec<String>,
}

impl World {
    pub(crate) fn new(plan: Plan, told: bool) -> Self {
        let retention = Duration::from_secs(30 * 86_400);
        let step = plan.step;
        let mut state = State {
            dice: Dice::new(plan.seed ^ 0x5eed),
            story: Story {
                told,
                lines: Vec::new(),
            },
            ledger: Arc::new(MemoryLedger::new(EPOCH, retention)),
            disk: Disk::default(),
            net: Net::default(),
            tool: Tool::default(),
            callers: plan.callers.iter().cloned().map(Caller::new).collect(),
            pushers: plan.files.iter().cloned().map(Pusher::new).collect(),
            truth: Truth::default(),
            ordered: BTreeSet::new(),
            life: 0,
            crash: Arc::default(),
            sooner: Arc::default(),
            keep: Vec::new(),
            clock: None,
            step: None,
            stepped: 0,
            base: 0,
            alive: false,
            dies_at_touch: None,
            bulk: Bulk::default(),
            bulk_again: Arc::default(),
            events: BinaryHeap::new(),
            count: 0,
            plan,
        };
        if let Some((at, by)) = step {
            state.at(at, Event::Steps(by));
        }
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    pub(crate) fn now(&self) -> u64 {
        let since = self
            .clock
            .as_ref()
            .map_or(0, |clock| clock.mono().0 / 1_000_000);
        self.base + since
    }

    /// A new gateway begins. Its clock.
    pub(crate) fn begins(&mut self, dies_at_touch: Option<(u64, bool)>) -> Clock {
        let at = EPOCH.after(Duration::from_millis(self.base));
        let (clock, step) = Clock::simulated(Wall(at.0 + self.stepped));
        self.clock = Some(clock.clone());
        self.step = Some(step);
        self.life += 1;
        self.alive = true;
        self.dies_at_touch = dies_at_touch;
        self.crash = Arc::default();
        self.sooner = Arc::default();
        self.say(|| "### a gateway begins".to_owned());
        clock
    }

    /// Where the next gateway's time begins.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The gateway is gone, and its runtime with it; the next one begins `later` ms from now.
    pub(crate) fn gone(&mut self, later: u64) {
        self.base += later;
        self.disk_after_crash();
        self.net_after_crash();
        for caller in &mut self.callers {
            caller.lost(self.base);
        }
    }

    pub(crate) fn is_alive(&self, life: u32) -> bool {
        self.alive && self.life == life
    }

    /// The gateway dies now: nothing it does from here on takes effect.
    pub(crate) fn dies(&mut self) {
        if self.alive {
            self.alive = false;
            // Time stands still until the next one begins.
            self.base = self.now();
            self.clock = None;
            self.say(|| "### the gateway is killed".to_owned());
            self.truth.reached.at("end of a gateway");
            self.crash.notify_one();
        }
    }

    /// One touch of the world by the gateway; whether it takes effect. It may be the last.
    pub(crate) fn touched(&mut self, life: u32) -> bool {
        if !self.is_alive(life) {
            return false;
        }
        let Some((left, after)) = &mut self.dies_at_touch else {
            return true;
        };
        *left -= 1;
        if *left > 0 {
            return true;
        }
        let after = *after;
        self.dies_at_touch = None;
        self.dies();
        after
    }

    /// The gateway dies so many touches from now, unless its end is near anyway. Whether it will.
    pub(crate) fn dies_within(&mut self, touches: u64, after: bool) -> bool {
        let free = self.dies_at_touch.is_none() && self.alive;
        if free {
            self.dies_at_touch = Some((touches, after));
        }
        free
    }

    pub(crate) fn at(&mut self, when: u64, event: Event) {
        self.count += 1;
        let sooner = self
            .events
            .peek()
            .is_none_or(|Reverse((at, ..))| when < *at);
        self.events.push(Reverse((when, self.count, Slot(event))));
        if sooner {
            self.sooner.notify_one();
        }
    }

    pub(crate) fn after(&mut self, wait: u64, event: Event) {
        self.at(self.now() + wait, event);
    }

    /// Lets everything happen that is due, and says when the next thing is.
    pub(crate) fn happen(&mut self) -> Option<u64> {
        loop {
            let now = self.now();
            match self.events.peek() {
                None => return None,
                Some(Reverse((at, ..))) if *at > now => return Some(*at),
                Some(_) => {}
            }
            let Reverse((_, _, Slot(event))) = self.events.pop().expect("there is one");
            self.perform(event);
        }
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Arrives(sent) => self.request_arrives(sent),
            Event::Asks(asked) => self.question_arrives(&asked),
            Event::Undoes(asked) => self.undo_arrives(&asked),
            Event::Commits(run) => self.commits(run),
            Event::Bytes(conn, bytes) => self.bytes_arrive(conn, &bytes),
            Event::Ends(conn, reset) => self.end_arrives(conn, reset),
            Event::Window(conn) => self.window_opens(conn),
            Event::Idles(conn, served) => self.idles(conn, served),
            Event::Written => self.disk_writes(),
            Event::Steps(by) => {
                self.say(|| format!("### the wall clock is stepped by {by} ms"));
                self.stepped += by;
                if let Some(step) = &self.step {
                    step.by(by);
                }
            }
        }
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.story.told {
            let at = self.now();
            let line = format!("{:>4}.{:03} {}", at / 1_000, at % 1_000, what());
            self.story.lines.push(line);
        }
    }

    /// A promise was broken.
    pub(crate) fn breaks(&mut self, promise: &str, what: &str) {
        self.say(|| format!("!!! {promise}: {what}"));
        self.truth.broken.push(format!("{promise}: {what}"));
    }
}

/// Lets the world happen while a gateway lives in it.
pub(crate) async fn turn(world: World, clock: Clock) {
    let (base, sooner) = {
        let state = world.lock();
        (state.base, Arc::clone(&state.sooner))
    };
    loop {
        let next = world.lock().happen();
        let next = next.map_or(u64::MAX, |at| (at - base).saturating_mul(1_000_000));
        tokio::select! {
            biased;
            () = sooner.notified() => {}
            () = clock.sleep_until(Mono(next)) => {}
        }
    }
}

impl PartialEq for Slot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Slot {}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slot {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
