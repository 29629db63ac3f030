use std::net::Ipv6Addr;

use reqwest::Url;

use crate::web::SetupError;

/// Hosts that may have any address.
#[derive(Debug, Default)]
pub(crate) struct Allow(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    host: String,
    /// All of them when absent.
    port: Option<u16>,
}

impl Allow {
    /// Reads `HOST` and `HOST:PORT`; an IPv6 address that has a port is in brackets.
    pub(crate) fn parse(entries: &[String]) -> Result<Self, SetupError> {
        let entry = |text: &String| parse(text).ok_or_else(|| SetupError::Allow(text.clone()));
        Ok(Self(entries.iter().map(entry).collect::<Result<_, _>>()?))
    }

    pub(crate) fn permits(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().map(plain) else { return false };
        let port = url.port_or_known_default();
        self.0.iter().any(|it| it.host == host && (it.port.is_none() || it.port == port))
    }
}

fn parse(text: &str) -> Option<Entry> {
    let (host, port) = match text.rsplit_once(':') {
        _ if text.parse::<Ipv6Addr>().is_ok() => (format!("[{text}]"), None),
        Some((host, port)) if !port.contains(']') => {
            (host.to_owned(), Some(port.parse().ok().filter(|port| *port > 0)?))
        }
        _ => (text.to_owned(), None),
    };
    if host.contains(['/', '\\', '?', '#', '@']) {
        return None;
    }
    // The same reading as that of the addresses it is compared with.
    let url = Url::parse(&format!("http://{host}/")).ok()?;
    let host = plain(url.host_str()?).to_owned();
    (url.port().is_none() && !host.is_empty()).then_some(Entry { host, port })
}

/// A name may end in a dot, which changes nothing.
fn plain(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: &str, url: &str, expect: bool) {
        let allow = Allow::parse(&[entry.to_owned()]).unwrap();
        assert_eq!(allow.permits(&Url::parse(url).unwrap()), expect, "{entry} and {url}");
    }

    #[test]
    fn a_host_is_compared_as_urls_read_it() {
        check("intranet", "http://intranet/x", true);
        check("Intranet.Example", "https://intranet.example:8443/", true);
        check("intranet.example", "http://intranet.example./", true);
        check("intranet.example", "http://x.intranet.example/", false);
        check("127.0.0.1", "http://0x7f000001/", true);
        check("127.0.0.1", "http://127.0.0.2/", false);
        check("::1", "http://[0:0::1]:99/", true);
        check("[::1]", "http://[::1]/", true);
    }

    #[test]
    fn a_port_is_the_only_one() {
        check("h:8080", "http://h:8080/", true);
        check("h:8080", "http://h/", false);
        check("h:80", "http://h/", true);
        check("h:80", "https://h/", false);
        check("h:443", "https://h/", true);
        check("[::1]:80", "http://[::1]/", true);
        check("[::1]:80", "http://[::1]:81/", false);
    }

    #[test]
    fn what_is_no_host_is_an_error() {
        for entry in ["", "http://x", "h:0", "h:99999", "a/b", "[::1", "a@b", "h:", "h:1:2", "a b"]
        {
            assert!(Allow::parse(&[entry.to_owned()]).is_err(), "{entry}");
        }
    }
}
