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
        let reading = pieces(source, digest);
        let (body, sent) = reading.map_err(|error| Failure::Usage(error.to_string()))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::recipe::{Recipe, Typed};
    use crate::batch::rows::Format;

    /// Everything that is sent of a file that is changed so after it was looked at.
    async fn sent(change: impl FnOnce(&std::path::Path)) -> (Vec<io::Result<Bytes>>, Sent) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "no,b\n1,2\n".repeat(3)).unwrap();
        let source = Source::open(&path, None).unwrap();
        let recipe = Recipe::read(&Typed::default()).unwrap();
        let looked = source.look(Format::Csv, &recipe).unwrap();
        change(&path);
        let (mut body, sent) = pieces(&source, looked.digest).unwrap();
        let mut pieces = Vec::new();
        while let Some(piece) = body.0.recv().await {
            pieces.push(piece);
        }
        (pieces, sent.await.unwrap())
    }

    #[tokio::test]
    async fn a_file_that_was_changed_after_it_was_looked_at_is_never_sent_to_its_end() {
        let (pieces, whole) = sent(|_| ()).await;
        assert_eq!(whole, Sent::All);
        assert!(pieces.iter().all(Result::is_ok));
        let grown = |path: &std::path::Path| {
            let mut text = std::fs::read(path).unwrap();
            text.extend(b"3,4\n");
            std::fs::write(path, text).unwrap();
        };
        let cut = |path: &std::path::Path| std::fs::write(path, "no,b\n1,2\n").unwrap();
        let same_length = |path: &std::path::Path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, text.replace('2', "3")).unwrap();
        };
        let changes: [fn(&std::path::Path); 3] = [grown, cut, same_length];
        for change in changes {
            let (pieces, how) = sent(change).await;
            assert_eq!(how, Sent::Changed);
            // The body breaks: the gateway never sees its end.
            assert!(pieces.last().is_some_and(Result::is_err));
        }
    }
}
