//! The fields of an answer. Whole answers are tested over sockets, in `ingress/tests/shapes`.

use super::*;
use crate::call::id::IdSource;

#[test]
fn a_call_is_named_byte_for_byte_and_its_address_is_encoded() {
    let field = HeaderName::from_static("x-call-id");
    for (id, link) in [
        ("plain-1.2_3~", "/_callgate/receipts/plain-1.2_3~"),
        ("x:y/z", "/_callgate/receipts/x%3Ay%2Fz"),
        ("%0d", "/_callgate/receipts/%250d"),
    ] {
        let mut headers = HeaderMap::new();
        let call_id = CallId::parse(id.as_bytes()).unwrap();
        name_call(&mut headers, &call_id, &field, true);
        assert_eq!(headers[&field], id);
        assert_eq!(headers[RECEIPT], link);
    }
}

#[test]
fn an_answer_that_would_hand_the_connection_over_is_not_passed_on() {
    let shape = Shape {
        id_field: X_CALL_OUTCOME,
        head: false,
        close: false,
        fragile: None,
    };
    let id = CallId::parse(b"a").unwrap();
    let whole = Whole {
        status: StatusCode::SWITCHING_PROTOCOLS,
        headers: HeaderMap::new().into(),
        body: Bytes::new(),
    };
    let told = Told {
        call: Some((id, IdSource::Client)),
        word: Word::Answered,
        attempts: 1,
        shown: Shown::Whole(whole),
        original: None,
        same_id_only: false,
        recorded: false,
    };
    assert_eq!(render(told, shape).status(), StatusCode::BAD_GATEWAY);
}
