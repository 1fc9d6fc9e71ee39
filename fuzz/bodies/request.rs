//! A request, read by the plain server and by hyper: what the plain one takes, hyper takes for the
//! same, and not a byte of what follows has to do with it.
//!
//! The input is what a caller writes.

use callgate::ingress::fuzzing::{hyper_hears, plainly};

/// Reads `data` as a request.
pub(super) fn check(data: &[u8]) {
    let Some((understood, taken)) = plainly(data) else {
        return;
    };
    assert_eq!(hyper_hears(data).as_ref(), Some(&understood));
    assert_eq!(plainly(&data[..taken]), Some((understood, taken)));
    assert!(plainly(&data[..taken - 1]).is_none(), "half a request");
}
