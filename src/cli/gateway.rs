//! Which gateway a client command talks to: the option, the environment, the configuration found,
//! or the address a gateway has by default.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::{Authority, Scheme};

use super::exit::Failure;
use super::output::Output;
use crate::config::{self, Config};

/// What an unknown variable counts as while an address is looked for.
const UNSET: &str = "unset";

/// Where `admin.listen` is unless configured otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9090";

/// Options of every command that asks a running gateway.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Asking a running gateway")]
pub struct GatewayArgs {
    /// How results are shown [default: table]
    #[arg(short, long, global = true, value_enum)]
    pub output: Option<Output>,
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
    pub fn find(self) -> Result<Gateway, Failure> {
        self.find_with(in_usual_places)
    }

    fn find_with(
        self,
        configured: impl FnOnce() -> Result<Option<Configured>, Failure>,
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
        let (address, token, origin) = match configured()? {
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

/// The operator's address in the first of the usual configuration files.
fn in_usual_places() -> Result<Option<Configured>, Failure> {
    config::find_default()
        .map(|file| in_file(&file))
        .transpose()
}

/// The operator's address in `file`. Variables that this shell does not have (the tool's secrets,
/// most likely) stand in the way of serving, but not of finding the address.
fn in_file(file: &Path) -> Result<Configured, Failure> {
    let config = config::load(file).or_else(|report| without_variables(file).ok_or(report));
    let config = config.map_err(|report| {
        Failure::Usage(format!(
            "the configuration that would say where the gateway is cannot be used:\n{report}\n  \
             Correct it, or say where the gateway is with --admin URL or CALLGATE_ADMIN."
        ))
    })?;
    let token = config
        .admin
        .token
        .as_ref()
        .map(|token| token.reveal().to_owned());
    let token = token.filter(|token| token != UNSET);
    Ok(Configured {
        file: file.to_owned(),
        admin: config.admin.listen,
        token,
    })
}

fn without_variables(file: &Path) -> Option<Config> {
    let text = std::fs::read_to_string(file).ok()?;
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let known = |name: &str| Some(std::env::var(name).unwrap_or_else(|_| UNSET.to_owned()));
    config::parse(&text, &file.display().to_string(), folder, &known).ok()
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
            output: None,
            admin: admin.map(str::to_owned),
            token: token.map(str::to_owned),
        }
    }

    fn none() -> Result<Option<Configured>, Failure> {
        Ok(None)
    }

    fn found() -> Result<Option<Configured>, Failure> {
        Ok(Some(Configured {
            file: PathBuf::from("callgate.yaml"),
            admin: SocketAddr::from(([0, 0, 0, 0], 9191)),
            token: Some("from-file".to_owned()),
        }))
    }

    #[test]
    fn a_file_tells_the_address_although_the_shell_lacks_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("callgate.yaml");
        let text = "admin: { listen: 127.0.0.1:9292, token: '${CALLGATE_TEST_NO_TOKEN}' }\n\
                    routes:\n\
                    - name: orders\n  \
                      upstream:\n    \
                        url: http://127.0.0.1:9000\n    \
                        headers: { X-Tool: '${CALLGATE_TEST_NO_SECRET}' }\n";
        std::fs::write(&file, text).unwrap();
        let found = in_file(&file).unwrap();
        assert_eq!((found.admin.port(), found.token), (9292, None));
        std::fs::write(&file, "routes: 7\n").unwrap();
        let failure = in_file(&file).unwrap_err();
        assert_eq!(failure.exit().code(), 2);
        assert!(failure.to_string().contains("--admin URL"), "{failure}");
    }

    #[test]
    fn the_option_wins_then_the_file_then_the_default() {
        let asked = args(Some("http://gw:1/base/"), None)
            .find_with(found)
            .unwrap();
        assert_eq!(
            (asked.url().as_str(), asked.token),
            ("http://gw:1/base", None)
        );
        let bare = args(Some("gw:1"), Some("t")).find_with(none).unwrap();
        assert_eq!(
            (bare.url().as_str(), bare.token.as_deref()),
            ("http://gw:1", Some("t"))
        );
        let file = args(Some(""), Some("")).find_with(found).unwrap();
        assert_eq!(file.url(), "http://127.0.0.1:9191");
        assert_eq!(file.token.as_deref(), Some("from-file"));
        assert_eq!(file.origin.to_string(), "admin.listen in callgate.yaml");
        let over = args(None, Some("mine")).find_with(found).unwrap();
        assert_eq!(over.token.as_deref(), Some("mine"));
        let default = args(None, None).find_with(none).unwrap();
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
            let failure = args(Some(url), None).find_with(none).unwrap_err();
            assert!(failure.to_string().contains(why), "{failure}");
            assert!(
                failure.to_string().contains("http://127.0.0.1:9090"),
                "{failure}"
            );
            assert_eq!(failure.exit().code(), 2);
        }
    }
}
