//! Fuzzes any sequence of events for the two machines; what has to hold stands in
//! `bodies/machine.rs`.

#![no_main]

#[path = "../bodies/machine.rs"]
mod machine;

libfuzzer_sys::fuzz_target!(|data: &[u8]| machine::check(data));
