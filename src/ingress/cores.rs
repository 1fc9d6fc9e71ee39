//! The cores: threads with a single-threaded runtime each, on which connections and calls live.
//!
//! A call never leaves the core its caller's connection was dealt to, so nothing on its way wakes
//! another thread. Per-core state elsewhere (pools of connections to tools) is found by
//! [`Core::index`]. Deliberately absent: pinning to processors; the kernel does as well.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::clock::Wheel;

/// How long a stopping core waits for blocking work, of which there is none in a call.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// One core; clones are the same core.
#[derive(Clone)]
pub struct Core(Arc<State>);

struct State {
    index: usize,
    handle: Handle,
    wheel: Wheel,
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
        self.0.index
    }

    /// Its timer wheel, for timeouts that normally do not fire.
    #[must_use]
    pub fn wheel(&self) -> &Wheel {
        &self.0.wheel
    }

    /// Its runtime.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.0.handle
    }

    pub(super) fn connections(&self) -> &AtomicUsize {
        &self.0.connections
    }
}

impl Cores {
    /// Starts `n` cores; 0 means one per processor this process may use.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be made.
    pub fn start(n: usize) -> io::Result<Self> {
        let n = if n == 0 {
            std::thread::available_parallelism().map_or(1, Into::into)
        } else {
            n
        };
        let stop = CancellationToken::new();
        let mut all = Vec::with_capacity(n);
        let mut threads = Vec::with_capacity(n);
        for index in 0..n {
            let (core, thread) = start_one(index, stop.clone())?;
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

fn start_one(index: usize, stop: CancellationToken) -> io::Result<(Core, JoinHandle<()>)> {
    let (ready, started) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name(format!("callgate-core-{index}"))
        .spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let handle = runtime.handle().clone();
            let wheel = {
                let _inside = runtime.enter();
                Wheel::start()
            };
            let core = Core(Arc::new(State {
                index,
                handle,
                wheel,
                connections: AtomicUsize::new(0),
            }));
            drop(ready.send(Ok(core)));
            runtime.block_on(stop.cancelled());
            runtime.shutdown_timeout(STOP_WAIT);
        })?;
    let core = started
        .recv()
        .map_err(|_| io::Error::other("a core ended at its start"))??;
    Ok((core, thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_runs_what_it_is_given_on_its_own_thread() {
        let cores = Cores::start(2).unwrap();
        let names: Vec<_> = cores
            .all()
            .iter()
            .map(|core| {
                let name = core
                    .handle()
                    .spawn(async { std::thread::current().name().map(str::to_owned).unwrap() });
                futures_name(name)
            })
            .collect();
        assert_eq!(names, ["callgate-core-0", "callgate-core-1"]);
        cores.stop();
    }

    fn futures_name(task: tokio::task::JoinHandle<String>) -> String {
        Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(task)
            .unwrap()
    }

    #[test]
    fn connections_go_to_the_least_loaded_core() {
        let cores = Cores::start(2).unwrap();
        let all = cores.all();
        assert_eq!(Cores::least_loaded(all).index(), 0);
        all[0].connections().store(2, Ordering::Relaxed);
        all[1].connections().store(1, Ordering::Relaxed);
        assert_eq!(Cores::least_loaded(all).index(), 1);
        cores.stop();
    }
}
