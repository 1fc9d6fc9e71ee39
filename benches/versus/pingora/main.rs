//! A minimal pingora-proxy for the comparison: one service, one thread, kept connections on both
//! sides, an id where the caller sent none, and the allocator that callgate uses.
//!
//! Deliberately absent: everything else that pingora can do.
//!
//! `versus-pingora LISTEN TOOL`, both `ip:port`; it runs until SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CALL_ID: &str = "x-call-id";
/// Kept connections to the tool, as in the other rows.
const POOL: usize = 1024;

struct Proxy {
    tool: String,
    made: AtomicU64,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(&self.tool, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        request: &mut RequestHeader,
        (): &mut Self::CTX,
    ) -> Result<()> {
        if request.headers.get(CALL_ID).is_none() {
            let n = self.made.fetch_add(1, Ordering::Relaxed);
            request.insert_header(CALL_ID, format!("pingora-{n}"))?;
        }
        Ok(())
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(tool)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: versus-pingora LISTEN TOOL");
        std::process::exit(2);
    };
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: POOL,
        // Right away: nothing is under way when it is told to stop.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let proxy = Proxy {
        tool,
        made: AtomicU64::new(0),
    };
    let mut service = http_proxy_service(&Arc::clone(&server.configuration), proxy);
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
