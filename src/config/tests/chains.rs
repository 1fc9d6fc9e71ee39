//! A route whose upstream is another gateway.

use super::*;

fn chained(keys: &str) -> Result<Config, Report> {
    read(&format!(
        "routes:\n  - name: r\n    upstream: {{ url: \"http://inner\", kind: callgate }}\n    \
         {keys}\n"
    ))
}

#[test]
fn what_another_gateway_does_not_know_is_never_resent() {
    let report =
        chained("receipt: {}\n    retry: { resend_on: [NOT_FOUND, UNKNOWN] }").unwrap_err();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert_eq!(report.findings[0].path, "routes[0].retry.resend_on");
    assert!(
        report.findings[0]
            .message
            .contains("only the one next to the tool")
    );
    // Where nothing has an effect nobody asks, and the key means nothing.
    assert!(chained("effects: none\n    retry: { resend_on: [NOT_FOUND, UNKNOWN] }").is_ok());
    assert_eq!(chained("receipt: {}").unwrap().warnings, []);
}

#[test]
fn a_gateway_is_asked_by_an_empty_receipt_section() {
    let warnings = chained("effects: once").unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].text.contains("write `receipt: {}`"),
        "{}",
        warnings[0]
    );
}
