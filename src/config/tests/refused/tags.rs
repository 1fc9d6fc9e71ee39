//! Tags: foreign ones are refused, also those that the YAML crate reads past.

use super::{check, read, with_top};

#[test]
fn a_tag_is_refused_with_its_place_unless_it_says_what_is_there_anyhow() {
    let table = [
        ("node: !!python/object a", "1:7"),
        ("node: !!python/object:os.system \"a\"", "1:7"),
        ("node: &n !!binary a", "1:7"),
        ("node: !<tag:yaml.org,2002:set> a", "1:7"),
        ("node: !<x> a", "1:7"),
        ("node: !x a", "1:7"),
        ("node: ! a", "1:7"),
        ("log: !!omap { level: info }", "1:6"),
        ("log: { !!set level: info }", "1:8"),
        ("!!x node: a", "1:1"),
        ("!x node: a", "1:1"),
        ("!!python/object:os.system\nnode: a", "1:1"),
        ("%TAG ! tag:x,2000:\n---\nnode: !x a", "1:1"),
        ("# !!x\n%TAG !! tag:x,2000:\n---\nnode: !!str a", "2:1"),
    ];
    for (top, place) in table {
        check(
            &with_top(top),
            &format!("{place} : a tag; "),
            "remove the tag",
        );
    }
    let fine = [
        "node: !!str a",
        "node: !<tag:yaml.org,2002:str> a",
        "workers: !!int \"4\"",
        "log: !!map { level: !!str info }",
        "# !!python/object %TAG !<x>\nnode: a",
        "admin: { token: \"!!python!<x>%TAG\" }",
        "node: a # %TAG\nadmin: { token: '!!set' }",
    ];
    for top in fine {
        let read = read(&with_top(top));
        assert!(read.is_ok(), "{top}\n{}", read.unwrap_err());
    }
}
