//! The cores: threads with a single-threaded runtime each, on which connections and calls live.
//!
//! A call never leaves the core its caller's connection was dealt to, so nothing on its way wakes
//! another thread. What `upstream` shares per runtime ([`Core::tools`]) is started with it.
//! Deliberately absent: pinning to processors; the kernel does as well.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Wheel};
use crate::upstream::{self, Bodies, Turns};

/// How long a stopping core waits for blocking work, of which there is none in a call.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// One core; clones are the same core.
#[derive(Clone)]
pub struct Core(Arc<State>);

struct State {
    tools: upstream::Core,
    /// Connections dealt to it and still open.
    connections: AtomicUsize,
}

/// All cores of a process.
pub struct Cores {
    all: Arc<[Core]>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Core {
    /// Its place among the cores, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.0.tools.index
    }

    /// The core as `upstream` knows it.
    #[must_use]
    pub fn tools(&self) -> &upstream::Core {
        &self.0.tools
    }

    fn on(runtime: &Runtime, index: usize, clock: Clock, bodies: &Bodies, turns: Turns) -> Self {
        let _inside = runtime.enter();
        let tools = upstream::Core::start(index, clock)
            .within(bodies)
            .turning(turns);
        Self(Arc::new(State {
            tools,
            connections: AtomicUsize::new(0),
        }))
    }

    /// Its timer wheel, for timeouts that normally do not fire.
    pub(super) fn wheel(&self) -> &Wheel {
        &self.0.tools.wheel
    }

    /// Runs `task` on this core; nobody waits for its end.
    pub(super) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.tools.spawn(task));
    }

    pub(super) fn connections(&self) -> &AtomicUsize {
        &self.0.connections
    }
}

impl Cores {
    /// Starts `n` cores; 0 means one per processor this process may use. `bodies` is what bodies
    /// may take on all of them together.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be made.
    pub fn start(n: usize, clock: &Clock, bodies: &Bodies) -> io::Result<Self> {
        let n = if n == 0 {
            std::thread::available_parallelism().map_or(1, Into::into)
        } else {
            n
        };
        let stop = CancellationToken::new();
        let mut all = Vec::with_capacity(n);
        let mut threads = Vec::with_capacity(n);
        for index in 0..n {
            let (core, thread) = start_one(index, (clock.clone(), bodies.clone()), stop.clone())?;
            all.push(core);
            threads.push(thread);
        }
        Ok(Self {
            all: all.into(),
            stop,
            threads,
        })
    }

    /// The cores, by index.
    #[must_use]
    pub fn all(&self) -> &Arc<[Core]> {
        &self.all
    }

    /// The core with the fewest open connections; the first of equals.
    pub(super) fn least_loaded(all: &[Core]) -> &Core {
        all.iter()
            .min_by_key(|core| core.connections().load(Ordering::Relaxed))
            .expect("at least one core was started")
    }

    /// Ends every core and drops whatever still runs there; what was recorded stays recorded.
    pub fn stop(mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A core's panic was reported by its hook; the others still have to end.
            drop(thread.join());
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn start_one(
    index: usize,
    (clock, bodies): (Clock, Bodies),
    stop: CancellationToken,
) -> io::Result<(Core, JoinHandle<()>)> {
    let (ready, started) = mpsc::sync_channel(1);
    let name = format!("callgate-core-{index}");
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let turns = Turns::default();
        let counted = turns.clone();
        let built = Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(move || counted.count())
            .build();
        match built {
            Ok(runtime) => {
                let core = Core::on(&runtime, index, clock, &bodies, turns);
                // Nobody listens only when the start of the cores was given up.
                drop(ready.send(Ok(core)));
                runtime.block_on(stop.cancelled());
                runtime.shutdown_timeout(STOP_WAIT);
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    })?;
    let core = started
        .recv()
        .map_err(|_| io::Error::other("a core ended at its start"))??;
    Ok((core, thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Bodies;

    #[test]
    fn every_core_runs_what_it_is_given_on_its_own_thread() {
        let cores = Cores::start(2, &Clock::start(), &Bodies::default()).unwrap();
        for (index, core) in cores.all().iter().enumerate() {
            assert_eq!(core.index(), index);
            let (tell, told) = mpsc::channel();
            core.run(async move {
                tell.send(std::thread::current().name().map(str::to_owned))
                    .unwrap();
            });
            assert_eq!(told.recv().unwrap(), Some(format!("callgate-core-{index}")));
        }
        cores.stop();
    }

    #[test]
    fn connections_go_to_the_least_loaded_core() {
        let cores = Cores::start(2, &Clock::start(), &Bodies::default()).unwrap();
        let all = cores.all();
        assert_eq!(Cores::least_loaded(all).index(), 0);
        all[0].connections().store(2, Ordering::Relaxed);
        all[1].connections().store(1, Ordering::Relaxed);
        assert_eq!(Cores::least_loaded(all).index(), 1);
        cores.stop();
    }
}
