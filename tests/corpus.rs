//! What the fuzzers were fed and what they found, as ordinary tests: every file below
//! `fuzz/corpus` and `fuzz/findings` goes through the same checks, without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../fuzz/bodies/answer.rs"]
mod answer;
#[path = "../fuzz/bodies/config.rs"]
mod config;
#[path = "../fuzz/bodies/identify.rs"]
mod identify;
#[path = "../fuzz/bodies/machine.rs"]
mod machine;
#[path = "../fuzz/bodies/receipt.rs"]
mod receipt;
#[path = "../fuzz/bodies/request.rs"]
mod request;
#[path = "../fuzz/bodies/same.rs"]
mod same;

/// The files of one target, findings first.
fn files(target: &str) -> Vec<PathBuf> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut files: Vec<PathBuf> = ["findings", "corpus"]
        .iter()
        .filter_map(|kind| fs::read_dir(fuzz.join(kind).join(target)).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a readable folder").path()))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn replay(target: &str, check: fn(&[u8])) {
    let files = files(target);
    assert!(files.len() >= 5, "the corpus of {target} is gone");
    for file in files {
        let data = fs::read(&file).expect("a readable file");
        // The name of the file that fails is the last line before the panic.
        println!("{}", file.display());
        check(&data);
    }
}

#[test]
fn every_known_answer_is_read_alike_by_both_clients() {
    replay("answer", answer::check);
}

#[test]
fn every_known_request_is_read_alike_by_both_servers() {
    replay("request", request::check);
}

#[test]
fn every_known_request_names_its_call_as_the_contract_says() {
    replay("identify", identify::check);
}

#[test]
fn every_known_receipt_says_no_more_than_it_holds() {
    replay("receipt", receipt::check);
}

#[test]
fn every_known_configuration_is_answered() {
    replay("config", config::check);
}

#[test]
fn every_known_sequence_of_events_ends_within_its_bounds() {
    replay("machine", machine::check);
}

#[test]
fn every_known_body_has_one_form_that_says_what_it_says() {
    replay("same", same::check);
}
