use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_command_tree_is_sound() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}

#[test]
fn every_command_of_the_documentation_parses() {
    let lines = [
        "callgate demo",
        "callgate serve",
        "callgate serve --config callgate.yaml",
        "callgate serve --tool http://127.0.0.1:9000",
        "callgate dead list",
        "callgate dead list --state MANUAL --route orders --client billing --older-than 2h",
        "callgate dead list --error reset --key k --limit 5 --cursor 7.1 -o ndjson",
        "callgate dead show ord-1 --client billing --output json",
        "callgate receipt ord-1 --admin http://gw:9090 --token t",
        "callgate --admin gw:9090 -o json receipt ord-1",
        "callgate health",
        "callgate health --live",
    ];
    for line in lines {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn wrong_lines_are_usage_errors() {
    let lines = [
        "callgate",
        "callgate fly",
        "callgate serve --config a.yaml --tool http://127.0.0.1:9000",
        "callgate dead list --limit many",
        "callgate receipt",
        "callgate dead list -o xml",
    ];
    for line in lines {
        let stop = parse(line).expect_err(line);
        assert!(stop.use_stderr(), "{line}");
    }
    assert!(!parse("callgate --help").unwrap_err().use_stderr());
    assert!(!parse("callgate --version").unwrap_err().use_stderr());
}
