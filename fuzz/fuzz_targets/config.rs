//! Fuzzes a configuration file; what has to hold stands in `bodies/config.rs`.

#![no_main]

#[path = "../bodies/config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::check(data));
