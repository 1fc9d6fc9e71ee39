//! Which gateway a client command talks to: the option, the environment, the configuration found,
//! or the address a gateway has by default.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::{Authority, Scheme};

use super::exit::Failure;
use super::output::Output;

/// Where `admin.listen` is unless configured otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9090";

/// Options of every command that asks a running gateway.
#[derive(Clone, Debug, clap::Args)]
pub struct GatewayArgs {
    /// How results are shown
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Output,
    /// The gateway's admin address [default: the one in the configuration found]
    #[arg(long, global = true, value_name = "URL", env = "CALLGATE_ADMIN")]
    admin: Option<String>,
    /// The gateway's admin token [default: the one in the configuration found]
    #[arg(
        long,
        global = true,
        env = "CALLGATE_ADMIN_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
}

/// The operator's address as a configuration file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The file.
    pub file: PathBuf,
    /// `admin.listen`.
    pub admin: SocketAddr,
    /// `admin.token`.
    pub token: Option<String>,
}

/// The gateway to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Host and port.
    pub(super) authority: Authority,
    /// What stands before the paths, when a proxy put it there; empty or `/something`.
    pub(super) prefix: String,
    pub(super) token: Option<String>,
    pub(super) origin: Origin,
}

/// Who said where the gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Asked,
    File(PathBuf),
    Default,
}

impl GatewayArgs {
    /// Finds the gateway.
    ///
    /// # Errors
    /// When the address is none, or the configuration that would name it cannot be used.
    pub fn find(
        self,
        configured: fn(Option<&Path>) -> anyhow::Result<Option<Configured>>,
    ) -> Result<Gateway, Failure> {
        let given = self.token.filter(|token| !token.is_empty());
        if let Some(url) = self.admin.filter(|url| !url.is_empty()) {
            let (authority, prefix) = address(&url)?;
            return Ok(Gateway {
                authority,
                prefix,
                token: given,
                origin: Origin::Asked,
            });
        }
        let (address, token, origin) = match configured(None)? {
            Some(found) => (
                reachable(found.admin),
                found.token,
                Origin::File(found.file),
            ),
            None => (DEFAULT_ADDRESS.to_owned(), None, Origin::Default),
        };
        let authority = address.parse().expect("a socket address is an authority");
        Ok(Gateway {
            authority,
            prefix: String::new(),
            token: given.or(token),
            origin,
        })
    }
}

/// An address to connect to, for one that is listened on: "everywhere" is reached on loopback.
fn reachable(listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port()).to_string()
}

fn address(url: &str) -> Result<(Authority, String), Failure> {
    let wrong = |why: &str| {
        Failure::Usage(format!(
            "--admin `{url}` {why}; it looks like http://{DEFAULT_ADDRESS} (CALLGATE_ADMIN is the \
             same setting)"
        ))
    };
    let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
    match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => {
            return Err(wrong("wants TLS, which the admin listener does not speak"));
        }
        Some(scheme) if *scheme != Scheme::HTTP => return Err(wrong("is no http URL")),
        _ => {}
    }
    let authority = uri
        .authority()
        .cloned()
        .ok_or_else(|| wrong("names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("holds a password; use --token"));
    }
    let prefix = uri.path().trim_end_matches('/').to_owned();
    Ok((authority, prefix))
}

impl Gateway {
    /// The address as a person would type it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.prefix)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("--admin or CALLGATE_ADMIN"),
            Self::File(path) => write!(f, "admin.listen in {}", path.display()),
            Self::Default => f.write_str("the default, as no configuration was found"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(admin: Option<&str>, token: Option<&str>) -> GatewayArgs {
        GatewayArgs {
            output: Output::default(),
            admin: admin.map(str::to_owned),
            token: token.map(str::to_owned),
        }
    }

    fn none(_: Option<&Path>) -> anyhow::Result<Option<Configured>> {
        Ok(None)
    }

    fn found(_: Option<&Path>) -> anyhow::Result<Option<Configured>> {
        Ok(Some(Configured {
            file: PathBuf::from("callgate.yaml"),
            admin: "0.0.0.0:9191".parse()?,
            token: Some("from-file".to_owned()),
        }))
    }

    #[test]
    fn the_option_wins_then_the_file_then_the_default() {
        let asked = args(Some("http://gw:1/base/"), None).find(found).unwrap();
        assert_eq!(
            (asked.url().as_str(), asked.token),
            ("http://gw:1/base", None)
        );
        let bare = args(Some("gw:1"), Some("t")).find(none).unwrap();
        assert_eq!(
            (bare.url().as_str(), bare.token.as_deref()),
            ("http://gw:1", Some("t"))
        );
        let file = args(Some(""), Some("")).find(found).unwrap();
        assert_eq!(file.url(), "http://127.0.0.1:9191");
        assert_eq!(file.token.as_deref(), Some("from-file"));
        assert_eq!(file.origin.to_string(), "admin.listen in callgate.yaml");
        let over = args(None, Some("mine")).find(found).unwrap();
        assert_eq!(over.token.as_deref(), Some("mine"));
        let default = args(None, None).find(none).unwrap();
        assert_eq!(default.url(), "http://127.0.0.1:9090");
    }

    #[test]
    fn an_address_that_is_none_is_a_usage_error_with_an_example() {
        let table = [
            ("https://gw:1", "TLS"),
            ("ftp://gw:1", "no http URL"),
            ("http://u:p@gw:1", "password"),
            ("/only/a/path", "names no host"),
            ("http://", "is no URL"),
        ];
        for (url, why) in table {
            let failure = args(Some(url), None).find(none).unwrap_err();
            assert!(failure.to_string().contains(why), "{failure}");
            assert!(
                failure.to_string().contains("http://127.0.0.1:9090"),
                "{failure}"
            );
            assert_eq!(failure.exit().code(), 2);
        }
    }
}
