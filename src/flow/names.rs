//! The clients by name, with the names they had: for calls that no key in a request's head tells
//! the owner of.
//!
//! A batch keeps its client as a word, perhaps for longer than the client has that name.
//! Deliberately absent: keys, which `ingress` reads.

use arc_swap::ArcSwap;

use crate::call::id::ClientName;
use crate::config::clients::Client;

/// The clients of the configuration in use; none are listed where everybody may call.
#[derive(Debug, Default)]
pub struct ClientNames(ArcSwap<Vec<ClientName>>);

impl ClientNames {
    /// These are the clients from now on.
    pub fn replace(&self, clients: &[Client]) {
        let named = clients
            .iter()
            .map(|client| ClientName::new(&client.name).with_former(&client.formerly));
        self.0.store(std::sync::Arc::new(named.collect()));
    }

    /// The client that is called so, or was; one that is not listed has no past.
    #[must_use]
    pub fn called(&self, name: &str) -> ClientName {
        let listed = self.listed(name);
        listed.unwrap_or_else(|| ClientName::new(name))
    }

    /// The listed client that is called so, or was.
    #[must_use]
    pub fn listed(&self, name: &str) -> Option<ClientName> {
        let clients = self.0.load();
        let present = clients.iter().find(|client| client.as_str() == name);
        let past = || clients.iter().find(|client| client.is_or_was(name));
        present.or_else(past).cloned()
    }

    /// Every listed name, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> Vec<ClientName> {
        self.0.load().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_client_is_found_by_the_name_it_has_and_by_those_it_had() {
        let client = |name: &str, former: &[&str]| Client {
            name: Arc::from(name),
            key_file: "unread".into(),
            keys: Vec::new(),
            formerly: former.iter().map(|old| Arc::from(*old)).collect(),
        };
        let names = ClientNames::default();
        assert!(names.listed("shop").is_none());
        assert!(names.called("shop").formerly().is_empty());
        names.replace(&[client("shop", &["store", "anonymous"]), client("post", &[])]);
        for name in ["shop", "store", "anonymous"] {
            let found = names.called(name);
            assert_eq!((found.as_str(), found.formerly().len()), ("shop", 2));
        }
        assert_eq!(names.called("nobody").as_str(), "nobody");
        assert_eq!(names.all().len(), 2);
    }
}
