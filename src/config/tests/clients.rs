//! Clients and their key files: what is accepted, and what is refused without ever showing a key.

use super::*;
use crate::config::clients::KeyDigest;

const KEY: &str = "0123456789abcdef-billing";
const OTHER: &str = "0123456789abcdef-shipping";

/// A folder with these key files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn read_in(folder: &Path, top: &str) -> Result<Config, Report> {
    parse(&with_top(top), "callgate.yaml", folder, &environment)
}

#[test]
fn keys_are_the_lines_of_their_file() {
    let two = format!("{KEY}\r\n\n  {OTHER}  \n");
    let folder = folder(&[("one", KEY.as_bytes()), ("two", two.as_bytes())]);
    let digest = |key: &str| KeyDigest::of(key.as_bytes());
    let table = [
        ("one", vec![digest(KEY)]),
        ("two", vec![digest(KEY), digest(OTHER)]),
    ];
    for (file, keys) in table {
        let top = format!("clients: [{{ name: billing, key_file: {file} }}]");
        let config = read_in(folder.path(), &top).unwrap();
        let [client] = &*config.clients else {
            panic!("one client, not {:?}", config.clients)
        };
        assert_eq!((&*client.name, &client.keys), ("billing", &keys), "{file}");
        assert_eq!(config.warnings.len(), 1, "only of the lacking receipt");
        let shown = format!("{config:?}{}", config.print());
        assert!(!shown.contains(KEY) && !shown.contains(OTHER), "{shown}");
        assert_eq!(
            read_in(folder.path(), &clients_of(&config))
                .unwrap()
                .clients,
            config.clients
        );
    }
    assert!(
        read_in(folder.path(), "clients: []")
            .unwrap()
            .clients
            .is_empty()
    );
}

/// The `clients` of the printed configuration.
fn clients_of(config: &Config) -> String {
    let shown = &config.effective()["clients"];
    format!("clients: {shown}")
}

#[test]
fn a_client_that_could_be_taken_for_another_is_refused() {
    let nine: String = (0..9).map(|n| format!("{KEY}{n}\n")).collect();
    let folder = folder(&[
        ("a", KEY.as_bytes()),
        ("b", OTHER.as_bytes()),
        ("both", format!("{OTHER}\n{KEY}").as_bytes()),
        ("twice", format!("{KEY}\n{KEY}\n").as_bytes()),
        ("empty", b" \n\n"),
        ("spaced", b"0123456789 abcdef"),
        ("binary", b"0123456789abcdef\xff\x00"),
        ("long", &vec![b'k'; 65 * 1024]),
        ("nine", nine.as_bytes()),
    ]);
    let only = "1:32 clients[0].key_file";
    let table = [
        (
            "{ name: a, key_file: a }, { name: a, key_file: b }",
            "1:45 clients[1].name",
            "is called",
        ),
        (
            "{ name: a, key_file: a }, { name: b, key_file: both }",
            "1:58 clients[1].key_file",
            "the client \"a\" has this key already",
        ),
        ("{ name: a, key_file: twice }", only, "line 2 of"),
        ("{ name: a, key_file: empty }", only, "holds no key"),
        ("{ name: a, key_file: none }", only, "No such file"),
        ("{ name: a, key_file: . }", only, "cannot use"),
        ("{ name: a, key_file: spaced }", only, "visible ASCII"),
        ("{ name: a, key_file: binary }", only, "visible ASCII"),
        ("{ name: a, key_file: long }", only, "longer than 64 KiB"),
        ("{ name: a, key_file: nine }", only, "at most 8 keys"),
        (
            "{ name: a b, key_file: a }",
            "1:19 clients[0].name",
            "1 to 48 letters",
        ),
        ("{ name: a }", "1:11 clients[0]", "`key_file` is missing"),
        ("{ key_file: a }", "1:11 clients[0]", "`name` is missing"),
    ];
    for (entries, place, word) in table {
        refused_at(&folder, entries, place, word);
    }
}

#[test]
fn a_former_name_leads_to_one_client() {
    let folder = folder(&[("a", KEY.as_bytes()), ("b", OTHER.as_bytes())]);
    let table = [
        (
            "{ name: a, key_file: a, formerly: [a] }",
            "1:45 clients[0].formerly",
            "only names nobody has any more",
        ),
        (
            "{ name: a, key_file: a, formerly: [z] }, { name: b, key_file: b, formerly: [z] }",
            "1:86 clients[1].formerly",
            "\"z\" stands among the former names of the client \"a\" too",
        ),
        (
            "{ name: a, key_file: a, formerly: [x y] }",
            "1:46 clients[0].formerly[0]",
            "1 to 48 letters",
        ),
    ];
    for (entries, place, word) in table {
        refused_at(&folder, entries, place, word);
    }
    // Calls from before there were clients can be handed on.
    let text = "clients: [{ name: a, key_file: a, formerly: [anonymous, z] }]";
    let config = read_in(folder.path(), text).unwrap();
    assert_eq!(config.clients[0].formerly.len(), 2);
}

/// Holds that these `clients` have one mistake, at this place and in these words.
fn refused_at(folder: &tempfile::TempDir, entries: &str, place: &str, word: &str) {
    let report = read_in(folder.path(), &format!("clients: [{entries}]")).unwrap_err();
    let [finding] = &*report.findings else {
        panic!("{entries}: one mistake, not\n{report}")
    };
    let at = finding.position.unwrap();
    let found = format!(
        "{}:{} {}: {}",
        at.line, at.column, finding.path, finding.message
    );
    assert!(
        found.starts_with(place),
        "{entries}: {found}, not at {place}"
    );
    assert!(found.contains(word), "{entries}: {found}, without {word:?}");
    let report = report.to_string();
    assert!(!report.contains(KEY) && !report.contains(OTHER), "{report}");
}

#[test]
fn a_key_that_can_be_guessed_is_warned_about() {
    let folder = folder(&[("short", b"secret\n")]);
    let config = read_in(folder.path(), "clients: [{ name: a, key_file: short }]").unwrap();
    let warning = &config.warnings[0];
    assert_eq!(warning.path, "clients[0].key_file");
    assert!(warning.text.contains("can be guessed") && !warning.text.contains("secret"));
}

#[test]
fn the_field_that_tells_who_calls_is_free_of_every_other_meaning() {
    let folder = folder(&[("key", KEY.as_bytes())]);
    let with = |upstream: &str, more: &str| {
        let text = format!(
            "clients: [{{ name: a, key_file: key }}]\nroutes:\n  - name: r\n    receipt: {{}}\n    \
             upstream: {{ url: \"http://t\", {upstream} }}\n    {more}\n"
        );
        parse(&text, "callgate.yaml", folder.path(), &environment)
    };
    let config = with("tenant_header: X-Tenant", "").unwrap();
    let tenant = config.routes[0].upstream.tenant_header.as_ref();
    assert_eq!(tenant.map(http::HeaderName::as_str), Some("x-tenant"));
    assert_eq!(config.warnings, []);
    let table = [
        ("tenant_header: Authorization", "", "carries no credential"),
        ("tenant_header: X-Call-Attempt", "", "tell calls apart"),
        ("tenant_header: Host", "", "other than Host"),
        ("tenant_header: \"x y\"", "", "name of a header field"),
        (
            "tenant_header: X-Tenant, headers: { x-tenant: a }",
            "",
            "sets this field already",
        ),
        (
            "tenant_header: X-Id",
            "call_id: { header: X-Id }",
            "one of its own",
        ),
        (
            "tenant_header: X-Key",
            "idempotency: { header: X-Key }",
            "one of its own",
        ),
    ];
    for (upstream, more, word) in table {
        let report = with(upstream, more).unwrap_err();
        assert_eq!(report.findings.len(), 1, "{report}");
        let finding = &report.findings[0];
        assert_eq!(finding.path, "routes[0].upstream.tenant_header");
        assert!(finding.message.contains(word), "{report}");
    }
    let lone =
        "routes: [{ name: r, receipt: {}, upstream: { url: \"http://t\", tenant_header: X-T } }]";
    let config = read(lone).unwrap();
    assert_eq!(config.warnings.len(), 1);
    assert!(
        config.warnings[0]
            .text
            .contains("`anonymous` for every call")
    );
}
