//! `/openapi.json`: the operators' API as a document, for those who write a client.
//!
//! Written by hand beside the code, since a generated one would say no more than the types do. A
//! test holds that it and the router have the same addresses and methods. Deliberately absent: the
//! members of every answer, which are promised by docs/ and read by people.

use axum::response::{IntoResponse as _, Response};
use http::header;

/// The document, as it is in the sources.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use axum::body::Body;
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;
    use crate::admin::router;
    use crate::admin::tests::admin;
    use crate::admin::tests::shelf::Shelf;

    type Methods = BTreeMap<String, BTreeSet<String>>;

    /// Addresses and methods of the document.
    fn documented() -> Methods {
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let methods = |of: &serde_json::Value| {
            let methods = of.as_object().unwrap().keys();
            methods.map(|name| name.to_uppercase()).collect()
        };
        paths
            .map(|(path, of)| (path.clone(), methods(of)))
            .collect()
    }

    /// Addresses and methods of the router: those from its description of itself, these from what
    /// it says is allowed when it is asked by a method nobody has.
    async fn routed() -> Methods {
        let admin = admin(Shelf::default(), None);
        let described = format!("{:?}", router(std::sync::Arc::clone(&admin)));
        let quoted = described.split('"').skip(1).step_by(2);
        // The framework's own: what answers where nothing else does.
        let is_fallback = |path: &str| path.len() == 1 || path.contains("__private");
        let paths = quoted.filter(|text| text.starts_with('/') && !is_fallback(text));
        let paths: BTreeSet<_> = paths.collect();
        let mut found = Methods::new();
        for path in &paths {
            let asked = path.replace("{id}", "1").replace("{name}", "n");
            let request = Request::builder().method("BREW").uri(asked);
            let request = request.body(Body::empty()).unwrap();
            let answer = router(std::sync::Arc::clone(&admin)).oneshot(request);
            let answer = answer.await.unwrap();
            let allowed = answer.headers().get(header::ALLOW);
            let allowed = allowed.unwrap_or_else(|| panic!("{path} says nothing"));
            let methods = allowed.to_str().unwrap().split(',').map(str::trim);
            // Whoever answers GET answers HEAD.
            let methods = methods.filter(|name| *name != "HEAD").map(str::to_owned);
            found.insert((*path).to_owned(), methods.collect());
        }
        found
    }

    #[tokio::test]
    async fn the_document_and_the_router_have_the_same_addresses() {
        let routed = routed().await;
        assert!(routed.len() > 20, "the router was not read: {routed:?}");
        assert_eq!(documented(), routed);
    }

    #[test]
    fn what_the_document_points_at_is_there() {
        let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut pointers = 0;
        for piece in DOCUMENT.split("\"$ref\": \"#").skip(1) {
            let pointer = piece.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
            pointers += 1;
        }
        assert!(pointers > 10);
        let mut ids = BTreeSet::new();
        let operations = document["paths"].as_object().unwrap().values();
        for operation in operations.flat_map(|path| path.as_object().unwrap().values()) {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()));
            assert!(operation["summary"].as_str().unwrap().ends_with('.'));
        }
    }
}
