//! `callgate init`: a short commented configuration to start from.
//!
//! It is printed, not written: where it goes is the shell's business, and no file is ever
//! overwritten.

use super::check::Told;
use super::exit::Exit;

/// The text printed; a valid configuration as it stands.
pub const START: &str = include_str!("../../config/start.yaml");

/// Prints the file to start from.
#[must_use]
pub fn run() -> Told {
    Told {
        out: START.to_owned(),
        err: String::new(),
        exit: Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::{self, CheckArgs};

    #[test]
    fn what_init_prints_passes_check() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("callgate.yaml");
        std::fs::write(&file, run().out).unwrap();
        let told = check::run(&CheckArgs {
            config: Some(file),
            print: false,
            probe: false,
        });
        assert_eq!((told.exit, &*told.err), (Exit::Ok, ""));
    }
}
