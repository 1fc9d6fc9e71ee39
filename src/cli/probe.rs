//! What a question about an unused call id found, in sentences for a person.
//!
//! `serve --tool` decides by it whether its tool has receipts; `check --probe` proves a route's
//! receipt endpoint before anything depends on it.

use super::exit::Failure;
use crate::app::Ground;
use crate::app::probe::{self, Probed};
use crate::config::Config;
use crate::upstream::receipt::{RawAnswer, Why};

/// What it means that a tool has receipts.
const WITH: &str = "\
So it has receipts. When a call times out or breaks, callgate asks there instead of guessing, and
sends the call again only if the tool never heard of it. That is believed once the tool has
recognised a call that it answered.";

/// What it means that a tool has none.
const WITHOUT: &str = "\
Serving as for a tool without receipts: a call that times out or breaks is never sent again, since
nobody can say what became of it. Its caller is told `unresolved`, and it waits for you in
`callgate dead list`. docs/receipts.md shows what a tool has to answer.";

/// Whether the answer is one that a receipt endpoint gives.
#[must_use]
pub(super) const fn is_receipt(answer: RawAnswer) -> bool {
    match answer {
        RawAnswer::NotFound | RawAnswer::State(_) => true,
        RawAnswer::Unknown(_) => false,
    }
}

/// What was found at the tool of `serve --tool`, and what it means for its calls.
#[must_use]
pub(super) fn of_tool(address: &str, probed: &Probed) -> String {
    let asked = format!("GET {address}/receipts/{}", probed.call_id);
    match probed.answer {
        RawAnswer::NotFound => format!("{asked}: the tool never heard of it.\n{WITH}\n"),
        RawAnswer::State(_) => format!("{asked}: the tool answers with a receipt.\n{WITH}\n"),
        RawAnswer::Unknown(why @ (Why::Unreachable | Why::Timeout | Why::Tls)) => format!(
            "{asked}: the tool cannot be asked now ({}).\n{WITHOUT}\n\
             Should it have receipts, start the tool first and then callgate again.\n",
            why.as_str()
        ),
        RawAnswer::Unknown(why) => {
            format!("{asked}: no receipt there ({}).\n{WITHOUT}\n", why.as_str())
        }
    }
}

/// Asks the receipt endpoint of every route. Returns the lines, and whether all answered as
/// receipt endpoints do.
///
/// # Errors
/// When an endpoint can never be reached as configured.
pub(super) fn of_routes(config: &Config) -> Result<(String, bool), Failure> {
    let (ground, mut lines, mut all) = (Ground::new(), String::new(), true);
    for route in &config.routes {
        for one in route.upstream.each() {
            let probed = probe::receipts(route, &one, &ground).map_err(super::serve::failed)?;
            let Some(Probed { call_id, answer }) = probed else {
                continue;
            };
            all &= answer == RawAnswer::NotFound;
            // With several addresses it matters which of them said what.
            let at = match route.upstream.others.is_empty() {
                true => String::new(),
                false => format!(" at {}", one.address),
            };
            let said = of_route(answer);
            lines.push_str(&format!(
                "  {}: asked about {call_id}: the tool{at} {said}\n",
                route.name
            ));
        }
    }
    Ok((lines, all))
}

fn of_route(answer: RawAnswer) -> String {
    match answer {
        RawAnswer::NotFound => "does not know it, as it should".to_owned(),
        RawAnswer::State(state) => format!(
            "says {} about an id that nobody used: it cannot tell calls apart, or receipt.states \
             maps too much",
            state.as_str()
        ),
        RawAnswer::Unknown(why) => format!(
            "gave no answer that can be used ({}); see docs/receipts.md",
            why.as_str()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::id::CallId;
    use crate::call::receipt::State;

    fn found(answer: RawAnswer) -> String {
        let call_id = CallId::parse(b"p-1").unwrap();
        of_tool("http://t", &Probed { call_id, answer })
    }

    #[test]
    fn each_finding_says_what_was_asked_and_what_it_means() {
        let table = [
            (RawAnswer::NotFound, "never heard of it", WITH, true),
            (
                RawAnswer::State(State::Success),
                "with a receipt",
                WITH,
                true,
            ),
            (RawAnswer::Unknown(Why::Html), "(html)", WITHOUT, false),
            (
                RawAnswer::Unknown(Why::Unreachable),
                "(unreachable)",
                WITHOUT,
                false,
            ),
        ];
        for (answer, said, meaning, receipts) in table {
            let text = found(answer);
            assert!(text.starts_with("GET http://t/receipts/p-1: "), "{text}");
            assert!(text.contains(said) && text.contains(meaning), "{text}");
            assert_eq!(is_receipt(answer), receipts, "{answer:?}");
        }
        let absent = found(RawAnswer::Unknown(Why::Unreachable));
        assert!(absent.contains("start the tool first"), "{absent}");
    }
}
