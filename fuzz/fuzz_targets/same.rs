//! Fuzzes the one form of a JSON body (`idempotency.exclude`); what has to hold stands in
//! `bodies/same.rs`.

#![no_main]

#[path = "../bodies/same.rs"]
mod same;

libfuzzer_sys::fuzz_target!(|data: &[u8]| same::check(data));
