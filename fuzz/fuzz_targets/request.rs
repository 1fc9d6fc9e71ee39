//! Fuzzes what a caller writes; what has to hold stands in `bodies/request.rs`.

#![no_main]

#[path = "../bodies/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request::check(data));
