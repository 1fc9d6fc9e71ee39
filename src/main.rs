//! The binary: the allocator, and the command line.

use std::process::ExitCode;

/// A call allocates on its core and its records are freed on the ledger's thread, a pattern that
/// the system's allocator pays for with locks (measured in docs/performance.md). What a burst has
/// left behind goes back to the system by a thread of the allocator's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    callgate::cli::run(std::env::args_os())
}
