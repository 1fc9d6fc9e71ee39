//! Whether a tool has receipts, asked once with an id that nobody has used.
//!
//! The question is the very one that calls are asked about later, through the same mapping, so
//! that what is found here is what will be found then.

use std::time::Duration;

use super::{Ground, StartError};
use crate::call::id::{CallId, ClientName};
use crate::config::Route;
use crate::config::route::Upstream;
use crate::upstream::receipt::{Question, RawAnswer};
use crate::upstream::{Core, ReceiptEndpoint};

/// How long the tool has to answer: a person waits for it.
const WITHIN: Duration = Duration::from_secs(2);

/// What a question about an unused call id brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The id that was asked about.
    pub call_id: CallId,
    /// The answer.
    pub answer: RawAnswer,
}

/// Asks the receipt endpoint of `route` at one of its addresses; `None` when it has none. Blocks.
///
/// # Errors
/// When the endpoint can never be reached as configured, or the system refuses a runtime.
pub fn receipts(
    route: &Route,
    upstream: &Upstream,
    ground: &Ground,
) -> Result<Option<Probed>, StartError> {
    let Some(rule) = &route.receipt else {
        return Ok(None);
    };
    let endpoint = ReceiptEndpoint::new(upstream, rule, 1)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::system("a runtime"))?;
    let call_id = format!("callgate-probe-{:016x}", ground.entropy.bits());
    let call_id = CallId::parse(call_id.as_bytes()).expect("letters and digits are a call id");
    let answer = runtime.block_on(async {
        let core = Core::start(0, ground.clock.clone());
        let question = Question {
            field: &route.call_id.header,
            call_id: &call_id,
            client: &ClientName::anonymous(),
            key: None,
            traceparent: None,
            credentials: None,
            connect: route.policy.timeouts.connect,
            timeout: WITHIN,
        };
        endpoint.ask(&core, &question).await.answer
    });
    runtime.shutdown_background();
    Ok(Some(Probed { call_id, answer }))
}
