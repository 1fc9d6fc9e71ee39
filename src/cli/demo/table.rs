//! What the demonstration prints on stdout: the two columns side by side, and one sentence.

use comfy_table::{CellAlignment, Table, presets};

use super::audit::Figures;

type Cell = fn(&Figures) -> String;

/// What a reader needs to judge the figures.
pub(super) const LEGEND: &str = "\
lost: not done, and nobody will do it; told wrong: told it failed when it was done, or the reverse.
The figures are the tool's own. It does not deduplicate: a second send is a second effect.";

/// The table of both columns.
pub(super) fn table(plain: &Figures, gateway: &Figures) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "plain retry with a new key", "callgate"]);
    let rows: [(&str, Cell); 11] = [
        ("calls", |column| column.calls.to_string()),
        ("effects executed", |column| column.effects.to_string()),
        ("executed twice", twice),
        ("lost", |column| column.lost.to_string()),
        ("told wrong", |column| column.told_wrong.to_string()),
        ("refused by the tool, told so", |column| {
            column.refused.to_string()
        }),
        ("open, and told so", |column| column.open.to_string()),
        ("retries", |column| column.retries.to_string()),
        ("receipts asked", |column| column.receipts_asked.to_string()),
        ("dead letters", dead_letters),
        ("wall time", wall),
    ];
    for (name, value) in rows {
        table.add_row([name.to_owned(), value(plain), value(gateway)]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// The verdict, in one sentence.
pub(super) fn verdict(plain: &Figures, gateway: &Figures) -> String {
    let plain = format!(
        "the plain client executed {} {} more than once, lost {} and told {} something untrue",
        plain.twice,
        if plain.twice == 1 { "call" } else { "calls" },
        plain.lost,
        callers(plain.told_wrong),
    );
    if gateway.clean() {
        let open = match gateway.open {
            0 => String::new(),
            1 => " (1 is in the queue, and its caller knows it)".to_owned(),
            open => format!(" ({open} are in the queue, and their callers know it)"),
        };
        format!(
            "With callgate none of {} calls was executed twice, lost or told wrong{open}; \
             on the same faults {plain}.",
            gateway.calls,
        )
    } else {
        format!(
            "NOT CLEAN: with callgate {} executed twice, {} lost, {} told wrong, which must never \
             happen and is a bug; {plain}.",
            gateway.twice, gateway.lost, gateway.told_wrong,
        )
    }
}

fn callers(count: u64) -> String {
    if count == 1 {
        "1 caller".to_owned()
    } else {
        format!("{count} callers")
    }
}

fn twice(column: &Figures) -> String {
    match column.extra_effects {
        0 => column.twice.to_string(),
        extra => format!("{} ({extra} effects too many)", column.twice),
    }
}

fn dead_letters(column: &Figures) -> String {
    if column.dead_letters.is_empty() {
        return "-".to_owned();
    }
    let total: u64 = column.dead_letters.values().sum();
    let ends: Vec<_> = column
        .dead_letters
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    format!("{total}\n{}", ends.join("\n"))
}

fn wall(column: &Figures) -> String {
    let push = column.push.as_secs_f64();
    if column.queue.is_zero() {
        format!("{push:.1} s")
    } else {
        format!("{push:.1} s + {:.1} s queue", column.queue.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn plain() -> Figures {
        Figures {
            calls: 3_000,
            effects: 3_412,
            twice: 300,
            extra_effects: 430,
            lost: 12,
            told_wrong: 1,
            push: Duration::from_millis(9_140),
            ..Figures::default()
        }
    }

    fn gateway() -> Figures {
        Figures {
            calls: 3_000,
            effects: 2_960,
            open: 2,
            dead_letters: BTreeMap::from([("MANUAL".to_owned(), 2), ("SETTLED".to_owned(), 6)]),
            push: Duration::from_millis(8_000),
            queue: Duration::from_millis(7_510),
            ..Figures::default()
        }
    }

    #[test]
    fn the_table_shows_both_columns() {
        let table = table(&plain(), &gateway());
        for text in [
            "plain retry with a new key",
            "300 (430 effects too many)",
            "9.1 s",
            "8.0 s + 7.5 s queue",
            "2 MANUAL",
            "6 SETTLED",
        ] {
            assert!(table.contains(text), "{text} is missing in\n{table}");
        }
    }

    #[test]
    fn the_verdict_is_one_sentence_and_says_whether_it_is_clean() {
        let good = verdict(&plain(), &gateway());
        assert_eq!(
            good,
            "With callgate none of 3000 calls was executed twice, lost or told wrong \
             (2 are in the queue, and their callers know it); on the same faults the plain client \
             executed 300 calls more than once, lost 12 and told 1 caller something untrue."
        );
        let bad = verdict(
            &plain(),
            &Figures {
                lost: 1,
                ..gateway()
            },
        );
        assert!(
            bad.starts_with("NOT CLEAN: with callgate 0 executed twice, 1 lost"),
            "{bad}"
        );
    }
}
