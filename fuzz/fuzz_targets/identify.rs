//! Fuzzes the call id in a request's head and body; what has to hold stands in
//! `bodies/identify.rs`.

#![no_main]

#[path = "../bodies/identify.rs"]
mod identify;

libfuzzer_sys::fuzz_target!(|data: &[u8]| identify::check(data));
