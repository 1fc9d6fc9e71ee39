//! Whatever a file was damaged to, the reader answers, and points inside the file.

use proptest::prelude::*;

use super::*;

const EVERYTHING: &str = include_str!("everything.yaml");

/// Pieces that change what YAML means.
const PIECES: [&str; 16] = [
    "{", "}", "[", "]", ":", "- ", "\n", "\n    ", "&a ", "*a", "${", "}", "\"", "'", "\t", "---\n",
];

/// The sample with a stretch cut out and a piece put in, a few times.
fn damaged() -> impl Strategy<Value = String> {
    let damage = (
        0..EVERYTHING.len(),
        0..40usize,
        proptest::sample::select(PIECES.to_vec()),
    );
    proptest::collection::vec(damage, 1..4).prop_map(|damages| {
        let mut text = EVERYTHING.to_owned();
        for (at, length, piece) in damages {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.replace_range(at..end, piece);
        }
        text
    })
}

#[test]
fn what_the_environment_says_is_not_shown_under_a_wrong_key() {
    let text = "routes:\n- name: \"Bearer ${TOKEN}\"\n  upstream: { url: \"${TOKEN}\" }\n";
    let report = read(text).unwrap_err().to_string();
    assert!(!report.contains("s3cret"), "{report}");
    assert!(report.contains("${TOKEN}"), "{report}");
}

proptest! {
    #[test]
    fn a_damaged_file_is_answered_with_places_inside_it(text in damaged()) {
        match read(&text) {
            Ok(config) => prop_assert!(read(&config.print()).is_ok()),
            Err(report) => {
                let lines = text.lines().count();
                prop_assert!(!report.findings.is_empty());
                for finding in &report.findings {
                    // One past the end is where something is missing.
                    let place = finding.position.map_or(1, |at| at.line);
                    prop_assert!((1..=lines + 1).contains(&place), "{}", report);
                }
                prop_assert!(!report.to_string().contains("s3cret"));
            }
        }
    }

    #[test]
    fn any_text_is_answered(text in "[a-z{}\\[\\]:,\\-&*!|>'\"#$%@`\n\t ]{0,80}") {
        if let Err(report) = read(&text) {
            prop_assert!(!report.to_string().is_empty());
        }
    }
}
