//! Submitting: the file goes to the gateway, again if the gateway was lost on the way.
//!
//! That is safe however far it came: lines that are there are compared and not written again, and
//! nothing of the batch runs before its last byte came. A file that is not the one looked at before
//! is never submitted to its end.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::super::exit::Failure;
use super::Job;
use super::source::Source;
use super::wire::{Link, Pieces};
use crate::clock;

/// Bytes of a piece, and pieces on the way.
const PIECE: usize = 64 << 10;
const PIECES_MAX: usize = 8;

/// Between two tries after the gateway was lost, and how many there are: a restart takes seconds.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const TRIES_MAX: u32 = 300;

/// Submits the file whose contents were `digest`; the gateway's answer.
pub(super) async fn submit(
    link: &Link<'_>,
    job: &Job,
    source: &Source,
    digest: [u8; 32],
    quiet: bool,
) -> Result<Value, Failure> {
    let mut tries = 0;
    loop {
        let (body, sent) = pieces(source, digest)?;
        let submitted = link
            .submit(&job.target, job.format.media_type(), body)
            .await;
        // The thread is over once nobody takes its pieces any more.
        let sent = sent.await.unwrap_or(Sent::Cut);
        let lost = match submitted {
            Err(_) if sent == Sent::Changed => {
                return Err(Failure::Usage(format!(
                    "the file was changed while it was read; the batch {} stays LOADING and \
                     nothing of it runs. Push the file again once it is complete",
                    job.name
                )));
            }
            Err(lost @ Failure::Unreachable { .. }) => lost,
            Err(Failure::Refused { status, detail }) if status.as_u16() == 503 => {
                Failure::Refused { status, detail }
            }
            answered => return answered,
        };
        tries += 1;
        // Nobody was there from the beginning: that is for the one who typed the address.
        let never = tries == 1 && sent == Sent::Nothing;
        if never || tries > TRIES_MAX {
            return Err(lost);
        }
        if !quiet && tries == 1 {
            eprintln!("the gateway was lost while the file was submitted; it is tried again");
        }
        clock::sleep(AGAIN_AFTER).await;
    }
}

/// How far a file came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Nobody took a byte.
    Nothing,
    /// Not to its end.
    Cut,
    /// To its end.
    All,
    /// To its end, which was not the one looked at before; it was held back.
    Changed,
}

/// The file as a body, and how far it came.
fn pieces(
    source: &Source,
    digest: [u8; 32],
) -> io::Result<(Pieces, tokio::task::JoinHandle<Sent>)> {
    let mut file = source.read()?;
    let (send, receive) = mpsc::channel::<io::Result<Bytes>>(PIECES_MAX);
    let reading = tokio::task::spawn_blocking(move || {
        let mut pieces = 0_usize;
        let mut buffer = vec![0; PIECE];
        loop {
            let piece = match file.read(&mut buffer) {
                Ok(0) if file.digest() == digest => return Sent::All,
                Ok(0) => {
                    let changed = io::Error::other("the file was changed while it was read");
                    // Told by what this returns.
                    let _gone = send.blocking_send(Err(changed));
                    return Sent::Changed;
                }
                Ok(n) => Ok(Bytes::copy_from_slice(&buffer[..n])),
                Err(error) => Err(error),
            };
            let broken = piece.is_err();
            let taken = send.blocking_send(piece).is_ok();
            pieces += usize::from(taken);
            if broken || !taken {
                // What waits in the queue was not taken by anybody.
                return if pieces > PIECES_MAX || broken {
                    Sent::Cut
                } else {
                    Sent::Nothing
                };
            }
        }
    });
    Ok((Pieces(receive), reading))
}
