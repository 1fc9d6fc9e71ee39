//! The line between a process and the one that takes over from it.
//!
//! The new process is the same command once more, so that it is whatever program stands under that
//! name now. Its standard input is one end of a socket pair: over it come the listening sockets,
//! and four words: it is ready; the ledger is yours; it serves. Before the first word nothing has
//! changed here, whatever the new process does; after the last nothing is needed here any more. In
//! between, its death is the end of the line, and the sockets are still in our hands. Deliberately
//! absent: what has to be let go, and when (`drain`).

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::sockets::{Door, Inherited};

/// What the first message begins with; another version would be another word.
const GREETING: &str = "callgate-takeover 1";

/// The words of the line, a byte each.
const READY: u8 = b'R';
const YOURS: u8 = b'Y';
const SERVES: u8 = b'S';

/// The first message: a greeting and a line for each socket.
const MESSAGE_BYTES_MAX: usize = 512;

/// Sockets in it.
const SOCKETS_MAX: usize = 2;

/// How long the new process may take to read and prove its configuration.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long it may take from the ledger to its first caller: a sweep of a large ledger, or a
/// schema brought up to date.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// How long its predecessor may take to let the ledger go; it means to within a second.
const YOURS_WITHIN: Duration = Duration::from_secs(30);

/// How long the first message may take; it is sent before the new process begins.
const GREETED_WITHIN: Duration = Duration::from_secs(5);

/// The flag by which the new process knows what its standard input is.
pub const FLAG: &str = "--takeover";

/// The command this process was started by.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program, as it was named.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The process that is to take over. Dropped, it is ended, unless it serves.
#[derive(Debug)]
pub(super) struct Successor {
    process: Option<Child>,
    line: tokio::net::UnixStream,
}

/// The process that is to be taken over from.
#[derive(Debug)]
pub struct Predecessor {
    line: UnixStream,
}

impl Successor {
    /// Starts the new process and hands it the sockets. Must be called inside a runtime.
    pub(super) fn start(invocation: &Invocation, sockets: &[Inherited]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        greet(&ours, sockets)?;
        ours.set_nonblocking(true)?;
        let given = invocation.arguments.iter().filter(|given| *given != FLAG);
        let process = Command::new(&invocation.program)
            .args(given)
            .arg(FLAG)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Self {
            process: Some(process),
            line: tokio::net::UnixStream::from_std(ours)?,
        })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    /// Resolves when it could take over. Dropped before that, nothing is lost.
    ///
    /// # Errors
    /// It has ended, or takes too long. What was wrong it has told in the log it shares with us.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        self.word(READY, READY_WITHIN).await
    }

    /// Tells it that the ledger is free, and waits until it serves.
    ///
    /// # Errors
    /// It has ended, or takes too long.
    pub(super) async fn take_over(&mut self) -> io::Result<()> {
        self.line.write_all(&[YOURS]).await?;
        self.word(SERVES, SERVES_WITHIN).await
    }

    /// It serves: from here on it lives by itself.
    pub(super) fn release(mut self) {
        self.process = None;
    }

    async fn word(&mut self, expected: u8, within: Duration) -> io::Result<()> {
        let heard = timeout(within, self.line.read_u8()).await;
        match heard.map_err(|_| io::ErrorKind::TimedOut)? {
            Ok(word) if word == expected => Ok(()),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        // It may have ended by itself; either way it is over at once, and must not stay behind.
        drop(process.kill());
        drop(process.wait());
    }
}

impl Predecessor {
    /// Takes the line and the sockets from `stdin`.
    ///
    /// # Errors
    /// When that is no such line.
    pub fn meet(stdin: impl AsFd) -> io::Result<(Self, Vec<Inherited>)> {
        let line = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
        line.set_read_timeout(Some(GREETED_WITHIN))?;
        let inherited = greeted(&line)?;
        line.set_read_timeout(Some(YOURS_WITHIN))?;
        Ok((Self { line }, inherited))
    }

    /// Says that everything was proved that can be without the ledger, and waits until the ledger
    /// is free. Blocks. A predecessor that is gone has let it go, too.
    pub(super) fn ready(&mut self) {
        let mut word = [0; 1];
        let heard = self
            .line
            .write_all(&[READY])
            .and_then(|()| self.line.read_exact(&mut word));
        if heard.is_err() || word != [YOURS] {
            tracing::warn!("nothing more is heard of the process that is taken over from");
        }
    }

    /// Says that callers are served.
    pub(super) fn serves(mut self) {
        // Gone, it need not know.
        drop(self.line.write_all(&[SERVES]));
    }
}

fn greet(line: &UnixStream, sockets: &[Inherited]) -> io::Result<()> {
    let mut message = format!("{GREETING}\n");
    for one in sockets {
        let (key, kept) = (one.door.key(), one.kept);
        let configured = one.configured.map_or_else(String::new, |at| at.to_string());
        message.push_str(&format!("{key} {configured} {kept}\n"));
    }
    let handed: Vec<BorrowedFd<'_>> = sockets.iter().map(|one| one.listener.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(&handed)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Into an empty socket: it is taken as a whole.
    let text = IoSlice::new(message.as_bytes());
    rustix::net::sendmsg(line, &[text], &mut beside, SendFlags::empty())?;
    Ok(())
}

fn greeted(line: &UnixStream) -> io::Result<Vec<Inherited>> {
    let mut message = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut message)];
    let read = rustix::net::recvmsg(line, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut handed = Vec::new();
    for given in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(sockets) = given {
            handed.extend(sockets);
        }
    }
    let unclear = || io::Error::from(io::ErrorKind::InvalidData);
    let text = std::str::from_utf8(&message[..read.bytes]).map_err(|_| unclear())?;
    let mut lines = text.lines();
    if lines.next() != Some(GREETING) {
        return Err(unclear());
    }
    let described: Vec<_> = lines.map_while(described).collect();
    if described.len() != handed.len() {
        return Err(unclear());
    }
    let inherited = described.into_iter().zip(handed);
    Ok(inherited
        .map(|((door, configured, kept), socket)| Inherited {
            door,
            listener: TcpListener::from(socket),
            configured: Some(configured),
            kept,
        })
        .collect())
}

fn described(line: &str) -> Option<(Door, SocketAddr, bool)> {
    let mut words = line.split(' ');
    let key = words.next()?;
    let door = [Door::Callers, Door::Operators]
        .into_iter()
        .find(|door| door.key() == key)?;
    let configured = words.next()?.parse().ok()?;
    let kept = words.next()?.parse().ok()?;
    Some((door, configured, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> Vec<Inherited> {
        let one = |door, kept| Inherited {
            door,
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            configured: Some("127.0.0.1:8080".parse().unwrap()),
            kept,
        };
        vec![one(Door::Callers, true), one(Door::Operators, false)]
    }

    #[test]
    fn the_sockets_cross_the_line_with_what_is_known_of_them() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sent = sockets();
        greet(&ours, &sent).unwrap();
        let (_line, got) = Predecessor::meet(&theirs).unwrap();
        assert_eq!(got.len(), 2);
        for (sent, got) in sent.iter().zip(&got) {
            assert_eq!((sent.door, sent.configured), (got.door, got.configured));
            assert_eq!(sent.kept, got.kept);
            let addresses = (sent.listener.local_addr(), got.listener.local_addr());
            assert_eq!(addresses.0.unwrap(), addresses.1.unwrap());
            // One socket in two hands: closed here, it listens on there.
            let at = got.listener.local_addr().unwrap();
            assert!(std::net::TcpStream::connect(at).is_ok());
        }
    }

    #[test]
    fn another_standard_input_is_told_apart() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Predecessor::meet(&file).is_err());
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let error = Predecessor::meet(&theirs).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    /// A successor that is this shell line.
    fn shell(line: &str) -> Successor {
        let invocation = Invocation {
            program: "sh".into(),
            arguments: vec!["-c".into(), line.into()],
        };
        Successor::start(&invocation, &sockets()).unwrap()
    }

    #[tokio::test]
    async fn a_successor_that_dies_before_its_word_is_heard_to_have_died() {
        let error = shell("exit 2").ready().await.unwrap_err();
        // A reset when it has not even read what it was told.
        let kinds = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        assert!(kinds.contains(&error.kind()), "{error}");
    }

    #[tokio::test]
    async fn the_words_are_said_in_their_order() {
        // The flag comes as the shell's own name, and is not looked at.
        let mut early = shell("printf S >&0; exec sleep 60");
        let error = early.ready().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut patient =
            shell("printf R >&0; head -c 300 >/dev/null; printf S >&0; exec sleep 60");
        patient.ready().await.unwrap();
        // The rest of what the shell waits for, so that it says its last word.
        patient.line.write_all(&[0; 300]).await.unwrap();
        patient.take_over().await.unwrap();
        let process = patient.id();
        assert_ne!(process, 0);
        drop(patient);
        // Dropped unreleased, it was ended and waited for.
        let mut is_there = Command::new("kill");
        is_there.arg("-0").arg(process.to_string());
        let there = is_there.stderr(Stdio::null()).status().unwrap();
        assert!(!there.success());
    }
}
