//! TLS to tools: a CA file of our own, and proof that nothing was sent when it does not fit.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::config::route::{CaFile, Upstream};
use crate::upstream::SetupError;

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        self.offering(name, &[])
    }

    /// One that offers these protocols (ALPN).
    pub(super) fn offering(&self, name: &str, protocols: &[&[u8]]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

pub(super) fn https(peer: &Peer, ca: Option<&str>) -> Upstream {
    let mut upstream = peer::upstream(&peer.endpoint());
    upstream.endpoint.https = true;
    upstream.ca = ca.map(|pem| CaFile {
        path: "ca.pem".into(),
        pem: Arc::from(pem.as_bytes()),
    });
    upstream
}

async fn serve(peer: &Peer, acceptor: &TlsAcceptor, times: usize) -> usize {
    let tcp = peer.accept_tcp().await;
    let Ok(tls) = acceptor.accept(tcp).await else {
        return 0;
    };
    answer(tls, times).await
}

/// Answers so many requests, as long as there are any.
pub(super) async fn answer(mut tls: TlsStream<TcpStream>, times: usize) -> usize {
    let mut served = 0;
    let mut read = Vec::new();
    while served < times {
        while !read.ends_with(b"\r\n\r\nhello") {
            if !matches!(tls.read_buf(&mut read).await, Ok(n) if n > 0) {
                return served;
            }
        }
        read.clear();
        tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await
            .unwrap();
        tls.flush().await.unwrap();
        served += 1;
    }
    served
}

#[tokio::test]
async fn a_tool_with_a_certificate_of_our_own_ca_is_spoken_to_and_kept() {
    let authority = Authority::new();
    let acceptor = authority.acceptor("127.0.0.1");
    let peer = Peer::bind().await;
    let core = Core::start(0, Clock::start());
    let tool = Tool::new(&https(&peer, Some(&authority.pem)), 1).unwrap();
    let calls = async {
        for _ in 0..3 {
            let mut exchange = Exchange::new(&core, tool.destination(), post(b"hello"), TERMS);
            let answer = collected((&mut exchange).await);
            assert_eq!(&answer.body[..], b"ok");
            assert!(exchange.written());
            assert!(!exchange.reconnected());
        }
    };
    // One connection carries all three.
    let ((), served) = tokio::join!(calls, serve(&peer, &acceptor, 3));
    assert_eq!(served, 3);
}

#[tokio::test]
async fn a_new_connection_resumes_the_session_of_an_earlier_one() {
    let authority = Authority::new();
    let acceptor = authority.acceptor("127.0.0.1");
    let peer = Peer::bind().await;
    let core = Core::start(0, Clock::start());
    let tool = Tool::new(&https(&peer, Some(&authority.pem)), 1).unwrap();
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let mut exchange = Exchange::new(&core, tool.destination(), post(b"hello"), TERMS);
        let server = async {
            let tls = acceptor.accept(peer.accept_tcp().await).await.unwrap();
            let kind = tls.get_ref().1.handshake_kind();
            // It answers once and hangs up.
            assert_eq!(answer(tls, 1).await, 1);
            kind
        };
        let (answer, kind) = tokio::join!(&mut exchange, server);
        assert_eq!(&collected(answer).body[..], b"ok");
        kinds.push(kind.unwrap());
    }
    assert_eq!(
        kinds,
        [
            HandshakeKind::Full,
            HandshakeKind::Resumed,
            HandshakeKind::Resumed
        ]
    );
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_means_that_nothing_was_sent() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let table = [
        // Another CA, the right CA for another name, and the system's roots only.
        (theirs.acceptor("127.0.0.1"), Some(ours.pem.as_str())),
        (ours.acceptor("elsewhere.example"), Some(ours.pem.as_str())),
        (ours.acceptor("127.0.0.1"), None),
    ];
    for (acceptor, ca) in table {
        let peer = Peer::bind().await;
        let core = Core::start(0, Clock::start());
        let tool = Tool::new(&https(&peer, ca), 1).unwrap();
        let mut exchange = Exchange::new(&core, tool.destination(), post(b"hello"), TERMS);
        let (ended, served) = tokio::join!(&mut exchange, serve(&peer, &acceptor, 1));
        assert_eq!(not_sent(&ended), NotSent::Tls);
        assert_eq!(served, 0);
        let trouble = exchange.trouble().unwrap();
        assert!(trouble.contains("certificate"), "{trouble}");
    }
}

#[tokio::test]
async fn a_tool_that_does_not_speak_tls_or_not_at_all_is_sent_nothing() {
    let authority = Authority::new();
    let terms = Terms {
        connect: Duration::from_millis(100),
        ..TERMS
    };
    for speaks in [true, false] {
        let peer = Peer::bind().await;
        let core = Core::start(0, Clock::start());
        let tool = Tool::new(&https(&peer, Some(&authority.pem)), 1).unwrap();
        let exchange = Exchange::new(&core, tool.destination(), post(b"hello"), terms);
        let script = async {
            let mut sock = peer.accept().await;
            if speaks {
                sock.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    .await;
            }
            sock
        };
        let (ended, _sock) = tokio::join!(exchange, script);
        assert_eq!(not_sent(&ended), NotSent::Tls);
    }
}

#[tokio::test]
async fn a_ca_file_without_a_usable_certificate_is_refused_at_start() {
    let peer = Peer::bind().await;
    let garbled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    let error = |pem| Tool::new(&https(&peer, Some(pem)), 1).unwrap_err();
    assert!(matches!(error(""), SetupError::CaEmpty { .. }));
    assert!(matches!(error("hello"), SetupError::CaEmpty { .. }));
    assert!(matches!(error(garbled), SetupError::CaCertificate { .. }));
    assert!(matches!(error(broken), SetupError::CaFile { .. }));
    assert!(error("").to_string().contains("ca.pem"));
}
