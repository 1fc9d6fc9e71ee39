//! The callers a gateway knows, and their keys as they are compared.
//!
//! A key is read from its file once per load and kept only as its SHA-256, so that no log, dump or
//! printed configuration can show it. Deliberately absent: header fields, which `ingress` reads.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// One entry of `clients`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its name: the scope of its call ids, keys and receipts. Never a metric label.
    pub name: Arc<str>,
    /// Where its keys were read from.
    pub key_file: PathBuf,
    /// Every key that is valid now; more than one while a key is being replaced.
    pub keys: Vec<KeyDigest>,
    /// Names it had before.
    pub formerly: Vec<Arc<str>>,
}

/// A client's key as it is compared: by its SHA-256, in constant time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Whether both are the same key; how long it takes does not tell how close they are.
    #[must_use]
    pub fn is(&self, presented: &Self) -> bool {
        self.0.ct_eq(&presented.0).into()
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(***)")
    }
}
