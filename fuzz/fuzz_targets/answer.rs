//! Fuzzes the answer of a tool; what has to hold stands in `bodies/answer.rs`.

#![no_main]

#[path = "../bodies/answer.rs"]
mod answer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| answer::check(data));
