//! Fuzzes the answer of a receipt endpoint; what has to hold stands in `bodies/receipt.rs`.

#![no_main]

#[path = "../bodies/receipt.rs"]
mod receipt;

libfuzzer_sys::fuzz_target!(|data: &[u8]| receipt::check(data));
