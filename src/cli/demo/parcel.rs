//! The business of the demonstration: one parcel-tracking call, as the nightly logistics batch
//! makes it. A parcel number is the postal union's S10 form, so a mistyped one can be told by its
//! check digit and the tool has an honest business reason to refuse a call. Deliberately absent:
//! clocks; the batch date is fixed, so that a seed names one batch exactly.

use serde::{Deserialize, Serialize};

/// The day of the batch. Fixed: the same seed must give the same bytes on every day.
const DATE: &str = "2026-11-30";
const SCENES: [&str; 4] = ["pickup", "transit", "customs", "delivery"];
/// Weights of the eight digits, as S10 of the Universal Postal Union prescribes them.
const WEIGHTS: [u32; 8] = [8, 6, 4, 2, 3, 5, 9, 7];

/// The body of `POST /track`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Parcel {
    pub tracking_no: String,
    pub date: String,
    pub scene: String,
}

impl Parcel {
    /// The parcel of one item of the batch; `mistyped` gives it a wrong check digit.
    pub(super) fn of(item: u32, mistyped: bool) -> Self {
        Self {
            tracking_no: tracking_no(item, mistyped),
            date: DATE.to_owned(),
            scene: SCENES[item as usize % SCENES.len()].to_owned(),
        }
    }

    /// The request body.
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a parcel is three strings")
    }
}

/// What a tracking number says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// The eight digits: the number of the item in the batch.
    pub item: u32,
    /// Whether the check digit fits.
    pub valid: bool,
}

/// The S10 number of an item, for example `RX000000015DE`.
pub(super) fn tracking_no(item: u32, mistyped: bool) -> String {
    let check = (check_digit(item) + u32::from(mistyped)) % 10;
    format!("RX{item:08}{check}DE")
}

/// Reads a tracking number; `None` when it has not even the form of one.
pub(super) fn read(tracking_no: &str) -> Option<Reading> {
    let digits = tracking_no.strip_prefix("RX")?.strip_suffix("DE")?;
    if digits.len() != 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let item = digits[..8].parse().ok()?;
    let check: u32 = digits[8..].parse().ok()?;
    Some(Reading {
        item,
        valid: check == check_digit(item),
    })
}

fn check_digit(item: u32) -> u32 {
    let digits = format!("{item:08}");
    let sum: u32 = digits
        .bytes()
        .zip(WEIGHTS)
        .map(|(digit, weight)| u32::from(digit - b'0') * weight)
        .sum();
    match 11 - sum % 11 {
        10 => 0,
        11 => 5,
        check => check,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_digit_is_the_postal_unions() {
        // The worked example of the S10 standard: 473124829 ends in a 9.
        assert_eq!(check_digit(47_312_482), 9);
        assert_eq!(tracking_no(47_312_482, false), "RX473124829DE");
    }

    #[test]
    fn a_number_reads_back_and_a_mistyped_one_is_told() {
        for item in [0, 1, 2_999, 99_999_999] {
            assert_eq!(
                read(&tracking_no(item, false)),
                Some(Reading { item, valid: true })
            );
            assert_eq!(
                read(&tracking_no(item, true)),
                Some(Reading { item, valid: false })
            );
        }
        for wrong in [
            "",
            "RXDE",
            "RX12DE",
            "RX00000000aDE",
            "XX000000015DE",
            "RX0000000155DE",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_body_has_the_three_fields_of_the_batch() {
        let body: serde_json::Value =
            serde_json::from_slice(&Parcel::of(3, false).json()).expect("own JSON");
        assert_eq!(body["scene"], "delivery");
        assert_eq!(body["date"], DATE);
        assert_eq!(body["trackingNo"], tracking_no(3, false));
    }
}
