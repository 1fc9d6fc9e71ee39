//! Where lines go: a bounded buffer and one thread that writes it to standard error.
//!
//! A core must not wait for whoever reads the log; a pipe that is full would stop every
//! connection it holds. So a line is copied into a buffer, and when the reader does not keep up,
//! lines are dropped, counted, and the gap is told in the log itself.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

/// A few seconds of a busy gateway's lines.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// A handle to the buffer.
#[derive(Clone)]
pub(super) struct Sink(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Told when the buffer stops being empty, and at the end.
    work: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    counter: Option<IntCounter>,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    dropped: u64,
    closed: bool,
}

impl Sink {
    /// Starts the writer of `out`.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        counter: Option<IntCounter>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            thread: Mutex::new(None),
            counter,
        });
        let writer = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.write(out))?;
        *shared.thread.lock() = Some(thread);
        Ok(Self(shared))
    }

    /// Writes out what is buffered and ends the writer.
    pub(super) fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.work.notify_one();
        let thread = self.0.thread.lock().take();
        if let Some(thread) = thread {
            // A writer that panicked has nobody left to tell.
            let _ = thread.join();
        }
    }

    fn line(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        if state.buffer.len() + line.len() > BUFFER_BYTES_MAX {
            state.dropped += 1;
            if let Some(counter) = &self.0.counter {
                counter.inc();
            }
            return;
        }
        let was_empty = state.buffer.is_empty();
        state.buffer.extend_from_slice(line);
        drop(state);
        if was_empty {
            self.0.work.notify_one();
        }
    }
}

impl Shared {
    fn write(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.buffer.is_empty() && !state.closed {
                self.work.wait(&mut state);
            }
            std::mem::swap(&mut batch, &mut state.buffer);
            let (dropped, closed) = (std::mem::take(&mut state.dropped), state.closed);
            drop(state);
            if dropped > 0 {
                // Written by hand: an event of our own would have to pass the full buffer.
                let gap = format!("{{\"level\":\"warn\",\"msg\":\"{dropped} log lines lost\"}}\n");
                batch.extend_from_slice(gap.as_bytes());
            }
            // When standard error is gone there is nowhere left to say so.
            let _ = out.write_all(&batch).and_then(|()| out.flush());
            batch.clear();
            if closed {
                return;
            }
        }
    }
}

/// Takes one formatted event.
pub(super) struct Line<'a>(&'a Sink);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader of the log that says when it began to take a batch and waits to be let go.
    struct Slow {
        taking: Sender<Vec<u8>>,
        go_on: Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.taking.send(bytes.to_vec()).unwrap();
            self.go_on.recv().unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_not_time_and_the_gap_is_told() {
        let ((taking, taken), (let_go, go_on)) = (channel(), channel());
        let counter = IntCounter::new("lost", "lost").unwrap();
        let sink = Sink::start(Slow { taking, go_on }, Some(counter.clone())).unwrap();
        sink.line(b"first\n");
        assert_eq!(taken.recv().unwrap(), b"first\n");
        let line = vec![b'x'; BUFFER_BYTES_MAX / 4];
        (0..6).for_each(|_| sink.line(&line));
        assert_eq!(counter.get(), 2);
        let_go.send(()).unwrap();
        let second = taken.recv().unwrap();
        assert!(second.ends_with(b"{\"level\":\"warn\",\"msg\":\"2 log lines lost\"}\n"));
        assert!(second.len() < BUFFER_BYTES_MAX + 100);
        // One permission for the batch in hand and one for whatever close() still writes.
        (0..2).for_each(|_| let_go.send(()).unwrap());
        sink.line(b"last\n");
        sink.close();
        let rest: Vec<u8> = taken.try_iter().flatten().collect();
        assert_eq!(rest, b"last\n");
    }
}
