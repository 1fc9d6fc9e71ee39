//! Alerts over a reload and over TLS: who is told is what the file says now, and an alert that
//! cannot be delivered is seen.

use crate::fixture::{Act, Call, Config, PATIENCE, Receipts, Reply, Script, Tool, World};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A world whose calls end in front of a human after a second, and are told of to `hook`.
fn world(hook: &Value) -> World {
    let hangs = Script::new().otherwise(Act::read_all().hang());
    let mute = hangs.receipts(Receipts::always(Act::says(Reply::new(500, ""))));
    World::with(mute, |config| alerting(config, hook))
}

fn alerting(config: Config, hook: &Value) -> Config {
    config
        .set("defaults/timeouts/total", "600ms")
        .set("defaults/timeouts/late", "300ms")
        .route("compensation", json!({ "alert": hook }))
}

/// A receiver that answers everything like this.
fn receiver(status: u16) -> Tool {
    Tool::start(Script::new().otherwise(Act::read_all().commit().answer(Reply::new(status, ""))))
}

fn hook(receiver: &Tool) -> String {
    format!("http://{}/alerts", receiver.address)
}

fn park(world: &World, id: &str) {
    world.call(&Call::with_id(id));
    world.gateway.wait_dead_letter(id, "MANUAL");
}

fn reload(world: &World, hook: &Value) -> Instant {
    let labels = [("result", "success")];
    let name = "callgate_config_reloads_total";
    let before = world.gateway.metrics().value(name, &labels);
    let text = alerting(world.config.clone(), hook).yaml();
    fs::write(world.gateway.config_file(), text).expect("written");
    world.gateway.wait_metric(name, &labels, before + 1.0);
    Instant::now()
}

/// Generous: a machine may be busy. What it must not be is the wait for a restart or a retry.
fn assert_soon(since: Instant) {
    assert!(since.elapsed() < Duration::from_secs(3), "too late");
}

#[test]
fn c56_a_reload_reaches_the_alerts_of_calls_that_wait_already() {
    let (old, new) = (receiver(500), receiver(204));
    let world = world(&json!({ "webhook": hook(&old), "on": ["reversed"] }));
    park(&world, "c1");
    assert_eq!(old.a(), 0, "nobody asked to be told of it");
    // What is told.
    reload(&world, &json!({ "webhook": hook(&old) }));
    old.wait_request(1);
    world
        .gateway
        .wait_until("several tries", || (old.a() >= 4).then_some(()));
    // Whom.
    let told = reload(&world, &json!({ "webhook": hook(&new) }));
    let alert = document(new.wait_request(1).body());
    assert_soon(told);
    assert_eq!(alert["calls"][0]["callId"], "c1");
    let undelivered = ("callgate_alerts_undelivered", [("route", "tool")]);
    world
        .gateway
        .wait_metric(undelivered.0, &undelivered.1, 0.0);
    // How often: the window of the first alert is an hour unless the file says otherwise.
    park(&world, "c2");
    let told = reload(&world, &json!({ "webhook": hook(&new), "repeat": "1s" }));
    let alert = document(new.wait_request(2).body());
    assert_soon(told);
    assert_eq!(alert["calls"][0]["callId"], "c2");
    // From what age on.
    let aged = json!({ "webhook": hook(&new), "on": [], "oldest_over": "1s" });
    let told = reload(&world, &aged);
    let alert = document(new.wait_request(3).body());
    assert_soon(told);
    assert_eq!(
        (&alert["event"], &alert["calls"][0]["callId"]),
        (&json!("oldest_over"), &json!("c1"))
    );
}

#[test]
fn an_alert_over_tls_that_nobody_can_verify_is_seen_and_told_once_the_ca_is_right() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let receiver = Ear::listen(&ours);
    let webhook = format!("https://{}/alerts", receiver.address);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hook.pem");
    fs::write(&file, &theirs.pem).expect("written");
    let rule = json!({ "webhook": webhook, "ca_file": file.display().to_string() });
    let world = world(&rule);
    park(&world, "c1");
    let undelivered = ("callgate_alerts_undelivered", [("route", "tool")]);
    world
        .gateway
        .wait_metric(undelivered.0, &undelivered.1, 1.0);
    let failed = [("route", "tool"), ("result", "failed")];
    assert!(
        world
            .gateway
            .metrics()
            .value("callgate_alerts_total", &failed)
            >= 1.0
    );
    let ready = world.gateway.admin("/readyz?verbose");
    assert_eq!(ready.status, 200, "callers are served all the same");
    assert!(
        ready.text().contains("undelivered-alerts"),
        "{}",
        ready.text()
    );
    assert!(ready.text().contains("certificate"), "{}", ready.text());
    let said = |record: &Value| {
        let error = record["error"].as_str().unwrap_or_default();
        record["msg"]
            .as_str()
            .is_some_and(|msg| msg.contains("could not be delivered"))
            && error.contains("certificate")
    };
    assert!(world.gateway.log().records().iter().any(said));
    assert!(
        receiver.heard.try_recv().is_err(),
        "nothing was told to a stranger"
    );
    // The right one, under the same name: no word of the configuration changes.
    fs::write(&file, &ours.pem).expect("written");
    let alert = receiver.heard.recv_timeout(PATIENCE).expect("an alert");
    assert_eq!(
        (&alert["event"], &alert["calls"][0]["callId"]),
        (&json!("manual"), &json!("c1"))
    );
    world
        .gateway
        .wait_metric(undelivered.0, &undelivered.1, 0.0);
}

fn document(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("an alert is JSON")
}

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn server(&self) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            );
        Arc::new(config.expect("the key is that of the certificate"))
    }
}

/// A receiver of alerts behind TLS, which takes whatever comes.
struct Ear {
    address: SocketAddr,
    heard: Receiver<Value>,
}

impl Ear {
    fn listen(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (config, (tell, heard)) = (authority.server(), channel());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                // A handshake that fails is what the test is about; the other end tells of it.
                if let Ok(body) = hear(socket, &config)
                    && tell.send(document(&body)).is_err()
                {
                    return;
                }
            }
        });
        Self { address, heard }
    }
}

/// One request, answered with 204.
fn hear(mut socket: TcpStream, config: &Arc<ServerConfig>) -> io::Result<Vec<u8>> {
    let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut stream = Stream::new(&mut tls, &mut socket);
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
                return Ok(body.as_bytes().to_vec());
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => read.extend_from_slice(&piece[..count]),
        }
    }
}
