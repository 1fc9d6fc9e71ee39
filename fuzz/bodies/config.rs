//! A configuration file: every text is answered, every mistake has a place inside the file, no
//! secret is repeated, and what was accepted is accepted again as it is printed.

use std::path::Path;

use callgate::config::{Config, Report, parse};

const SECRET: &str = "s3cret-0b1a";

/// Reads `data` as a configuration.
pub(super) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // A `ca_file` is read while the text is: not from devices.
    if text.contains("/dev") || text.contains("/proc") {
        return;
    }
    match read(text) {
        Ok(config) => accepted(&config),
        Err(report) => refused(text, &report),
    }
}

fn read(text: &str) -> Result<Config, Report> {
    let environment = |name: &str| match name {
        "TOKEN" => Some(SECRET.to_owned()),
        "WORKERS" => Some("4".to_owned()),
        _ => None,
    };
    parse(text, "callgate.yaml", Path::new("/nowhere"), &environment)
}

fn accepted(config: &Config) {
    assert!(!config.routes.is_empty());
    let printed = config.print();
    match read(&printed) {
        Ok(again) => assert_eq!(again.print(), printed, "printing changes what it prints"),
        Err(report) => panic!("what was printed is refused: {report}\n{printed}"),
    }
}

fn refused(text: &str, report: &Report) {
    assert!(!report.findings.is_empty(), "refused without a reason");
    // YAML also ends a line with a lone CR, and with three characters beyond ASCII.
    let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let lines = text.matches(breaks).count() + 2;
    for finding in &report.findings {
        let line = finding.position.map_or(1, |at| at.line);
        assert!((1..=lines).contains(&line), "{report}");
        assert!(!finding.message.is_empty());
    }
    if !text.contains(SECRET) {
        assert!(!report.to_string().contains(SECRET), "a secret is repeated");
    }
}
