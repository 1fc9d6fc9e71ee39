//! The name of a batch that was given none: the same for the same calls, and easy to type.
//!
//! It begins with what the file is called, as far as that can stand in a command and in an address,
//! and ends with a hash of everything that makes the calls what they are.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::PushArgs;

/// The longest part that comes from the file's name.
const STEM_BYTES_MAX: usize = 60;

/// What a file is called whose name has nothing that can be kept.
const NAMELESS: &str = "rows";

/// The name for the calls of a file with this digest.
pub(super) fn of(args: &PushArgs, digest: &[u8; 32]) -> String {
    let mut hash = Sha256::new();
    hash.update(digest);
    let parts = [&args.client, &args.method, &args.path, &args.body];
    let parts = parts.into_iter().map(|part| part.as_deref().unwrap_or(""));
    let headers = args.header.iter().map(String::as_str);
    for part in [args.route.as_str()]
        .into_iter()
        .chain(parts)
        .chain(headers)
    {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let hex: String = hash.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("{}-{hex}", stem(&args.file))
}

/// What a file is called, in letters that need no quotes; never an option by its first one.
fn stem(file: &Path) -> String {
    if file.as_os_str() == "-" {
        return "stdin".to_owned();
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut plain = String::new();
    for c in stem.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' => plain.push(c),
            _ if plain.ends_with('-') => {}
            _ => plain.push('-'),
        }
    }
    let plain = plain.trim_start_matches(['-', '.']);
    let cut = &plain[..plain.len().min(STEM_BYTES_MAX)];
    match cut.trim_end_matches(['-', '.']) {
        "" => NAMELESS.to_owned(),
        stem => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn name(line: &str, digest: u8) -> String {
        let command = PushArgs::augment_args(Command::new("push"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        of(
            &PushArgs::from_arg_matches(&matches).unwrap(),
            &[digest; 32],
        )
    }

    #[test]
    fn the_same_calls_have_the_same_name_and_others_another() {
        let plain = name("push /a/night.csv --route track", 1);
        assert!(plain.starts_with("night-") && plain.len() == 18, "{plain}");
        let slower = name("push /b/night.csv --route track --workers 3", 1);
        assert_eq!(plain, slower);
        for (line, digest) in [
            ("push night.csv --route track", 2),
            ("push night.csv --route other", 1),
            ("push night.csv --route track --path /t/{a}", 1),
            ("push night.csv --route track --method PUT", 1),
            ("push night.csv --route track --header A:1", 1),
        ] {
            assert_ne!(name(line, digest), plain, "{line}");
        }
    }

    #[test]
    fn whatever_a_file_is_called_its_batch_can_be_typed() {
        let long = format!("{}.csv", "n".repeat(250));
        for (file, expected) in [
            (&b"night.csv"[..], "night"),
            (b"/var/spool/night.2026-11-30.csv", "night.2026-11-30"),
            (b"-", "stdin"),
            (b"./-", NAMELESS),
            (b"---x.csv", "x"),
            (b"--route.csv", "route"),
            (b"my  file (2).csv", "my-file-2"),
            (b".csv", "csv"),
            (b"...csv", NAMELESS),
            (b"..", NAMELESS),
            (b"/", NAMELESS),
            (b"", NAMELESS),
            (long.as_bytes(), &"n".repeat(STEM_BYTES_MAX)),
            ("夜间.csv".as_bytes(), NAMELESS),
            ("夜间-night-单号.csv".as_bytes(), "night"),
            ("café.csv".as_bytes(), "caf"),
            (b"a\x1b[2J\nb\r\t.csv", "a-2J-b"),
            (b"\xff\xfe.csv", NAMELESS),
            (b"$(rm -rf x);'\"`.csv", "rm-rf-x"),
            (b"/dev/fd/63", "63"),
        ] {
            let found = stem(Path::new(OsStr::from_bytes(file)));
            assert_eq!(found, expected, "{}", file.escape_ascii());
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            assert!(found.chars().all(plain), "{found}");
            assert!(
                !found.starts_with(['-', '.']) && !found.is_empty(),
                "{found}"
            );
        }
    }
}
