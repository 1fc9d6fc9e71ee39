//! A caller's connection, as a call sees it.

/// A caller's connection. Holds nothing open: the connection may end while the call runs on.
#[derive(Clone, Debug)]
pub struct Line;

impl Line {
    /// Resolves when the caller has shut its writing side (FIN), or the connection has ended.
    pub async fn half_closed(&self) {
        std::future::pending::<()>().await;
    }
}
