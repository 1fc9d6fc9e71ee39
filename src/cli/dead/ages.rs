//! Times as a tired person reads them: how long ago, and in how long.

use jiff::Timestamp;
use serde_json::Value;

use crate::call::time::Wall;

/// How long ago `at` was, in the two largest units: `12m`, `3h10m`, `2d4h`.
pub(super) fn age(at: &Value, now: Wall) -> Option<String> {
    let at: Timestamp = at.as_str()?.parse().ok()?;
    Some(span(now.0.saturating_sub(at.as_millisecond())))
}

/// In how long `at` will be; `now` once it is over.
pub(super) fn until(at: &Value, now: Wall) -> Option<String> {
    let at: Timestamp = at.as_str()?.parse().ok()?;
    let left = at.as_millisecond().saturating_sub(now.0);
    Some(if left <= 0 {
        "now".to_owned()
    } else {
        format!("in {}", span(left))
    })
}

fn span(millis: i64) -> String {
    let secs = millis.max(0) / 1_000;
    let two = |large: i64, unit: char, small: i64, less: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{less}")
        }
    };
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{}m", secs / 60),
        3_600..86_400 => two(secs / 3_600, 'h', secs % 3_600 / 60, 'm'),
        _ => two(secs / 86_400, 'd', secs % 86_400 / 3_600, 'h'),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_told_in_two_units_at_most() {
        let at = json!("2026-11-01T12:00:00.000Z");
        let noon = at.as_str().unwrap().parse::<Timestamp>().unwrap();
        let table = [
            (0, "0s", "now"),
            (59, "59s", "now"),
            (61, "1m", "now"),
            (3_600, "1h", "now"),
            (11_460, "3h11m", "now"),
            (187_200, "2d4h", "now"),
            // A clock that is behind the gateway's.
            (-90, "0s", "in 1m"),
            (-11_460, "0s", "in 3h11m"),
        ];
        for (secs, ago, ahead) in table {
            let now = Wall(noon.as_millisecond() + secs * 1_000);
            assert_eq!(age(&at, now).as_deref(), Some(ago), "{secs}");
            assert_eq!(until(&at, now).as_deref(), Some(ahead), "{secs}");
        }
        assert_eq!(age(&Value::Null, Wall(0)), None);
    }
}
