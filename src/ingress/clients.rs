//! Who is calling: the keys in a request's head, recognised and taken out of it.
//!
//! A key is compared by its SHA-256, in constant time, with every key there is; which one it was is
//! not to be had from the time it takes. What was recognised ends here: the tool never sees a
//! gateway's key, and neither the ledger nor a log gets the chance. A credential that is no key of
//! this gateway is the caller's own business with the tool and stays. Deliberately absent: where
//! keys come from, which is the configuration's.

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{HeaderMap, header};

use crate::call::id::ClientName;
use crate::config::clients::{Client, KeyDigest};
use crate::upstream::fields::{Fields, Text};

/// Where a caller may put its key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const FIELDS: [HeaderName; 2] = [AUTHORIZATION, X_API_KEY];

/// The scheme before a key in `Authorization`.
const BEARER: &[u8] = b"bearer";

/// The callers of one configuration load.
#[derive(Debug)]
pub struct Clients {
    /// Every valid key with its client.
    keys: Vec<(KeyDigest, ClientName)>,
    /// Whose every request is when no client is configured.
    anonymous: ClientName,
}

impl Clients {
    /// The clients as they were configured; none listed means that everybody may call.
    #[must_use]
    pub fn new(clients: &[Client]) -> Self {
        let keys = clients.iter().flat_map(|client| {
            let name = ClientName::new(&client.name).with_former(&client.formerly);
            client.keys.iter().map(move |key| (*key, name.clone()))
        });
        Self {
            keys: keys.collect(),
            anonymous: ClientName::anonymous(),
        }
    }

    /// Whose request this is. Its key is taken out of `headers`. `None` when it carries no valid
    /// key, or those of two clients.
    #[must_use]
    pub fn recognise(&self, headers: &mut Fields) -> Option<ClientName> {
        if self.keys.is_empty() {
            return Some(self.anonymous.clone());
        }
        if let Some(found) = headers.text_mut().and_then(|text| self.single(text)) {
            return Some(found);
        }
        let mut found = None;
        let mut two = false;
        for field in &FIELDS {
            let Some(owner) = self.take(headers, field, &mut two) else {
                continue;
            };
            two |= found.as_ref().is_some_and(|other| *other != owner);
            found = Some(owner);
        }
        found.filter(|_| !two)
    }

    /// Whose request this is, when one line alone may be a key and is one; that line is left out.
    fn single(&self, text: &mut Text) -> Option<ClientName> {
        let [one, other] = &FIELDS;
        let field = match (text.has(one), text.has(other)) {
            (true, false) => one,
            (false, true) => other,
            (true, true) | (false, false) => return None,
        };
        let mut lines = text.all(field);
        let (Some(only), None) = (lines.next(), lines.next()) else {
            return None;
        };
        let owner = self.owner(presented(field, only)?)?;
        drop(lines);
        text.leave_out(field);
        Some(owner)
    }

    /// Takes every line of `field` that is a key out of `headers`, and says whose it was.
    fn take(
        &self,
        headers: &mut HeaderMap,
        field: &HeaderName,
        two: &mut bool,
    ) -> Option<ClientName> {
        let owner_of = |line: &HeaderValue| self.owner(presented(field, line.as_bytes())?);
        let mut owners = headers.get_all(field).iter().filter_map(owner_of);
        let owner = owners.next()?;
        *two |= owners.any(|other| other != owner);
        if let header::Entry::Occupied(entry) = headers.entry(field) {
            let (name, lines) = entry.remove_entry_mult();
            let kept: Vec<HeaderValue> = lines.filter(|line| owner_of(line).is_none()).collect();
            for line in kept {
                headers.append(name.clone(), line);
            }
        }
        Some(owner)
    }

    /// Whose key this is. Looks at all of them, whichever it is.
    fn owner(&self, key: &[u8]) -> Option<ClientName> {
        let presented = KeyDigest::of(key);
        let mut owner = None;
        for (known, client) in &self.keys {
            if known.is(&presented) {
                owner = Some(client);
            }
        }
        owner.cloned()
    }
}

/// The key in a line of `field`, if it has the form of one.
fn presented<'a>(field: &HeaderName, line: &'a [u8]) -> Option<&'a [u8]> {
    let value = line.trim_ascii();
    if *field != AUTHORIZATION {
        return Some(value);
    }
    let (scheme, key) = value.split_at_checked(BEARER.len())?;
    let apart = key.first().is_some_and(u8::is_ascii_whitespace);
    (apart && scheme.eq_ignore_ascii_case(BEARER)).then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::upstream::fields::tests::request_of;

    fn clients() -> Clients {
        let client = |name: &str, keys: &[&str]| Client {
            name: Arc::from(name),
            key_file: "unread".into(),
            formerly: vec![Arc::from(format!("old-{name}"))],
            keys: keys
                .iter()
                .map(|key| KeyDigest::of(key.as_bytes()))
                .collect(),
        };
        Clients::new(&[
            client("billing", &["old-key", "new-key"]),
            client("shipping", &["ship-key"]),
        ])
    }

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_key_names_its_client_and_goes_no_further() {
        let (authorization, key) = ("authorization", "x-api-key");
        type Lines<'a> = &'a [(&'static str, &'a str)];
        let table: [(Lines<'_>, Option<&str>, Lines<'_>); 14] = [
            (&[(key, "ship-key")], Some("shipping"), &[]),
            (&[(authorization, "Bearer new-key")], Some("billing"), &[]),
            (
                &[(authorization, "bearer   old-key ")],
                Some("billing"),
                &[],
            ),
            // The tool's own credential in the other field goes on.
            (
                &[(authorization, "Bearer tool"), (key, "old-key")],
                Some("billing"),
                &[(authorization, "Bearer tool")],
            ),
            (
                &[(authorization, "Bearer ship-key"), (key, "tool")],
                Some("shipping"),
                &[(key, "tool")],
            ),
            // Both fields, one client: neither goes on.
            (
                &[(authorization, "Bearer old-key"), (key, "new-key")],
                Some("billing"),
                &[],
            ),
            (
                &[
                    (authorization, "Basic x"),
                    (authorization, "Bearer old-key"),
                ],
                Some("billing"),
                &[(authorization, "Basic x")],
            ),
            // Two clients at once are nobody.
            (
                &[(authorization, "Bearer old-key"), (key, "ship-key")],
                None,
                &[],
            ),
            (&[(key, "old-key"), (key, "ship-key")], None, &[]),
            (&[], None, &[]),
            (&[(key, "")], None, &[(key, "")]),
            (&[(key, "old-ke")], None, &[(key, "old-ke")]),
            (
                &[(authorization, "Bearerold-key")],
                None,
                &[(authorization, "Bearerold-key")],
            ),
            (
                &[(authorization, "old-key")],
                None,
                &[(authorization, "old-key")],
            ),
        ];
        for (sent, client, left) in table {
            recognised(Fields::from(fields(sent)), client, fields(left));
            // The same of a head that was not made a map.
            let host = [("host", "t")];
            let lines = request_of(&[&host[..], sent].concat());
            recognised(lines, client, fields(&[&host[..], left].concat()));
        }
    }

    #[track_caller]
    fn recognised(mut sent: Fields, client: Option<&str>, left: HeaderMap) {
        let recognised = clients().recognise(&mut sent);
        let name = recognised.as_ref().map(ClientName::as_str);
        assert_eq!((name, &*sent), (client, &left));
    }

    #[test]
    fn without_clients_everybody_is_anonymous_and_keeps_what_it_sent() {
        let sent = fields(&[("authorization", "Bearer tool"), ("x-api-key", "k")]);
        let mut headers = Fields::from(sent.clone());
        let client = Clients::new(&[]).recognise(&mut headers);
        assert_eq!(client, Some(ClientName::anonymous()));
        assert_eq!(*headers, sent);
    }
}
