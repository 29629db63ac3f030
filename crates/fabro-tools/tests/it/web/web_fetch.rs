use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fabro_fakes::{Response, Server};
use fabro_tools::web::{Limits, Resolve, WebFetch, WebSettings};
use fabro_tools::{Call, Tool, ToolContext};
use fabro_types::Permissions;
use insta::assert_snapshot;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{call, shown, web, web_with};

/// A server with this script, which may be fetched from as `127.0.0.1`, and what a fetch shows.
async fn fetched(script: Vec<Response>, path: &str) -> String {
    let server = Server::start(script).await.unwrap();
    let port = server.address().port();
    let tool = web(&[&format!("127.0.0.1:{port}")]);
    shown(&call(&tool, json!({"url": server.url() + path})).await, port)
}

#[tokio::test]
async fn a_page_comes_as_text() {
    let html = "<title>T</title><h1>Hello</h1><p>World, <a href=/x>there</a>";
    let page = Response::bytes(200, "text/html; charset=utf-8", html);
    assert_snapshot!(fetched(vec![page], "/a?b=c").await, @r"
    http://127.0.0.1:PORT/a?b=c (text/html, 60 bytes)
    Title: T

    # Hello

    World, [there](http://127.0.0.1:PORT/x)
    ");
    let plain = Response::bytes(200, "application/json", "{\"a\": 1}");
    assert_snapshot!(fetched(vec![plain], "").await, @r#"
    http://127.0.0.1:PORT/ (application/json, 8 bytes)

    {"a": 1}
    "#);
    let empty = Response::bytes(204, "text/plain", "");
    assert_snapshot!(fetched(vec![empty], "").await, @r"
    http://127.0.0.1:PORT/ (text/plain, 0 bytes)

    (no text)
    ");
    let untold = Response::bytes(200, "", "<!DOCTYPE html><p>x");
    assert_snapshot!(fetched(vec![untold], "").await, @r"
    http://127.0.0.1:PORT/ (unknown type, 19 bytes)

    x
    ");
}

#[tokio::test]
async fn a_request_says_who_asks_and_nothing_more() {
    let first = Response::redirect("/b").header("set-cookie", "a=b");
    let server = Server::start(vec![first, Response::bytes(200, "text/plain", "x")]).await.unwrap();
    call(&web(&["127.0.0.1"]), json!({"url": server.url()})).await;
    let requests = server.requests();
    assert_eq!(requests[1].path, "/b");
    let mut headers = requests[1].headers.clone();
    headers.remove("host");
    assert_eq!(headers.remove("user-agent").unwrap(), concat!("fabro/", env!("CARGO_PKG_VERSION")));
    assert_snapshot!(format!("{headers:?}"), @r#"{"accept": "text/html, text/markdown, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5"}"#);
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused() {
    let server = Server::start(vec![Response::bytes(200, "text/plain", "secret")]).await.unwrap();
    let port = server.address().port();
    let tool = web(&[]);
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.0.1.",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "127%2e0%2e0%2e1",
        "１２７.0.0.1",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "localhost",
        "LOCALHOST",
    ] {
        let output = call(&tool, json!({"url": format!("http://{host}:{port}/")})).await;
        assert!(
            output.is_error && output.text.contains("is not a public address"),
            "{host}: {}",
            output.text
        );
    }
    assert!(server.requests().is_empty());
    let output = call(&tool, json!({"url": "http://0x7f000001/"})).await;
    assert_snapshot!(shown(&output, port), @"error: `127.0.0.1` is at 127.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`");
}

#[tokio::test]
async fn a_name_is_as_private_as_its_most_private_address() {
    let server = Server::start(vec![Response::bytes(200, "text/plain", "hello")]).await.unwrap();
    let port = server.address().port();
    let names: &[(&str, &[&str])] = &[
        ("home.example", &["127.0.0.1"]),
        ("mixed.example", &["93.184.215.14", "127.0.0.1"]),
        ("six.example", &["::ffff:10.0.0.1"]),
        ("nothing.example", &[]),
    ];
    let mut all = String::new();
    for allow in [&[][..], &["home.example"]] {
        let tool = web_with(allow, names);
        for host in ["home.example", "mixed.example", "six.example", "nothing.example", "un.known"]
        {
            let output = call(&tool, json!({"url": format!("http://{host}:{port}/")})).await;
            all.extend([shown(&output, port).lines().next().unwrap(), "\n"]);
        }
    }
    assert_snapshot!(all, @r"
    error: `home.example` is at 127.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `mixed.example` is at 127.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `six.example` is at ::ffff:10.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `nothing.example` cannot be found (it has no address): check its name
    error: `un.known` cannot be found (no such name): check its name
    http://home.example:PORT/ (text/plain, 5 bytes)
    error: `mixed.example` is at 127.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `six.example` is at ::ffff:10.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `nothing.example` cannot be found (it has no address): check its name
    error: `un.known` cannot be found (no such name): check its name
    ");
}

/// Public when it is asked first, and loopback from then on.
struct Rebinding(AtomicUsize);

#[async_trait]
impl Resolve for Rebinding {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        let first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        // Public by its number, but not assigned: there is no route to it, or a long one.
        let public = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1);
        let address = if first { public.into() } else { Ipv4Addr::LOCALHOST.into() };
        Ok(vec![address])
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_checked_is_what_is_reached() {
    let server = Server::start(vec![Response::bytes(200, "text/plain", "secret")]).await.unwrap();
    let resolver = Arc::new(Rebinding(AtomicUsize::new(0)));
    let settings =
        WebSettings { resolver: Arc::<Rebinding>::clone(&resolver), ..WebSettings::default() };
    let tool = WebFetch::new(settings).unwrap();
    let url = format!("http://flip.example:{}/", server.address().port());
    assert!(call(&tool, json!({"url": url})).await.is_error);
    assert_eq!(resolver.0.load(Ordering::SeqCst), 1);
    let output = call(&tool, json!({"url": url})).await;
    assert!(output.text.contains("is not a public address"), "{}", output.text);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn redirects_are_looked_at_one_by_one() {
    let secret = Server::start(vec![Response::bytes(200, "text/plain", "secret")]).await.unwrap();
    let elsewhere = format!("http://localhost:{}/", secret.address().port());
    let other_port = secret.url();
    let user = "http://u:p@127.0.0.1/";
    let mapped = "http://[::ffff:169.254.169.254]/";
    let mut all = String::new();
    for to in
        [&*other_port, &*elsewhere, user, mapped, "file:///etc/passwd", "http://[", "//10.0.0.1"]
    {
        let output = fetched(vec![Response::redirect(to)], "/").await;
        let output = output.replace(&secret.address().port().to_string(), "OTHER");
        all.extend([&output, "\n"]);
    }
    assert_snapshot!(all, @r"
    error: `127.0.0.1` is at 127.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `localhost` is at 127.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: a URL with a user name or password is not fetched: remove them
    error: `[::ffff:a9fe:a9fe]` is at ::ffff:169.254.169.254, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    error: `file:` cannot be fetched: only http:// and https:// can
    error: it redirects to something that is not a URL
    error: `10.0.0.1` is at 10.0.0.1, which is not a public address; only the settings can permit it, with `web_allow` in `[run.agent]`
    ");
    assert!(secret.requests().is_empty());

    assert_snapshot!(fetched(vec![Response::redirect("/")], "/").await, @"error: more than 5 redirects: this may be a loop");
    let done = Response::bytes(200, "text/plain", "there").at("/b/d");
    let script = vec![Response::redirect("b/c").at("/a"), Response::redirect("d").at("/b/c"), done];
    assert_snapshot!(fetched(script, "/a").await, @r"
    http://127.0.0.1:PORT/b/d (text/plain, 5 bytes)

    there
    ");
    let nowhere = Response::bytes(302, "text/plain", "lost");
    assert_snapshot!(fetched(vec![nowhere], "/").await, @r"
    error: http://127.0.0.1:PORT/ answered 302 Found

    lost
    ");
}

#[tokio::test]
async fn only_pages_are_fetched() {
    let mut all = String::new();
    for url in [
        "",
        "x",
        "/etc/passwd",
        "file:///etc/passwd",
        "ftp://h/",
        "data:text/plain,x",
        "http://",
        "http://u@h/",
        "https://u:p@h/",
        "http://a b/",
    ] {
        let output = call(&web(&[]), json!({"url": url})).await;
        all.extend([&shown(&output, 0), "\n"]);
    }
    all += &shown(&call(&web(&[]), json!({})).await, 0);
    assert_snapshot!(all, @r"
    error: `` is not a URL: write a whole one, with http:// or https://
    error: `x` is not a URL: write a whole one, with http:// or https://
    error: `/etc/passwd` is not a URL: write a whole one, with http:// or https://
    error: `file:` cannot be fetched: only http:// and https:// can
    error: `ftp:` cannot be fetched: only http:// and https:// can
    error: `data:` cannot be fetched: only http:// and https:// can
    error: `http://` is not a URL: write a whole one, with http:// or https://
    error: a URL with a user name or password is not fetched: remove them
    error: a URL with a user name or password is not fetched: remove them
    error: `http://a b/` is not a URL: write a whole one, with http:// or https://
    error: `` is not a URL: write a whole one, with http:// or https://
    ");
    let long = call(&web(&[]), json!({"url": "x".repeat(1 << 20)})).await;
    assert!(long.is_error && long.text.len() < 300);
}

#[tokio::test]
async fn long_pages_are_cut_and_say_so() {
    let server =
        Server::start(vec![Response::bytes(200, "text/plain", "ä".repeat(3 << 20))]).await.unwrap();
    let tool = web(&["127.0.0.1"]);
    let url = server.url();
    let output = call(&tool, json!({"url": url, "max_chars": 10})).await;
    assert_snapshot!(shown(&output, server.address().port()), @r"
    http://127.0.0.1:PORT/ (text/plain, 1,048,576 bytes)

    ääääääääää

    [524,278 more characters: max_chars can be up to 200,000]

    [the page is too long: its end was not read]
    ");
    let output = call(&tool, json!({"url": url, "max_chars": 10_000_000})).await;
    assert_eq!(output.text.matches('ä').count(), 200_000);

    let settings = WebSettings {
        allow: vec!["127.0.0.1".to_owned()],
        limits: Limits { bytes: 5, ..Limits::default() },
        ..WebSettings::default()
    };
    let output = call(&WebFetch::new(settings).unwrap(), json!({"url": url})).await;
    assert_snapshot!(shown(&output, server.address().port()), @r"
    http://127.0.0.1:PORT/ (text/plain, 5 bytes)

    ää

    [the page is too long: its end was not read]
    ");
}

#[tokio::test]
async fn what_is_no_text_is_not_read() {
    let mut all = String::new();
    for response in [
        Response::bytes(200, "image/png", vec![0; 12_345]),
        Response::bytes(200, "text/plain", b"\x7fELF\0\0".to_vec()),
        Response::bytes(200, "", b"PK\0".to_vec()),
        Response::bytes(200, "text/html", "x").header("content-encoding", "gzip"),
        Response::bytes(404, "application/pdf", "x"),
    ] {
        all.extend([&fetched(vec![response], "/").await, "\n"]);
    }
    assert_snapshot!(all, @r"
    error: the answer is image/png (12,345 bytes), which is not text: only text, HTML, JSON and XML are read
    error: the answer is binary (text/plain) (6 bytes), which is not text: only text, HTML, JSON and XML are read
    error: the answer is binary (3 bytes), which is not text: only text, HTML, JSON and XML are read
    error: the answer is compressed (gzip), though that was not asked for: it cannot be read
    error: http://127.0.0.1:PORT/ answered 404 Not Found
    ");
}

#[tokio::test]
async fn a_refusal_of_the_server_is_an_error_with_its_words() {
    let gone = Response::bytes(404, "text/html", format!("<h1>Not here</h1>{}", "x".repeat(9_000)));
    let output = fetched(vec![gone], "/").await;
    assert!(output.chars().count() < 2_100);
    assert_snapshot!(&output[..80], @r"
    error: http://127.0.0.1:PORT/ answered 404 Not Found

    # Not here

    xxxxxxxxxxxxxx
    ");
    assert_snapshot!(fetched(vec![Response::bytes(503, "text/plain", "")], "/").await, @"error: http://127.0.0.1:PORT/ answered 503 Service Unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_left() {
    assert_snapshot!(fetched(vec![Response::silence()], "/").await, @"error: timeout: no complete response within 30s; try again later, or request less");
    let slow =
        Response::bytes(200, "text/plain", "x".repeat(100)).byte_delay(Duration::from_secs(1));
    assert_snapshot!(fetched(vec![slow], "/").await, @"error: timeout: no complete response within 30s; try again later, or request less");
}

#[tokio::test]
async fn a_server_that_is_gone_is_told() {
    assert_snapshot!(fetched(vec![Response::gone()], "/").await, @"error: the request failed: connection closed before message completed");
    let server = Server::start(Vec::new()).await.unwrap();
    let url = server.url();
    drop(server);
    tokio::task::yield_now().await;
    let output = call(&web(&["127.0.0.1"]), json!({"url": url})).await;
    assert_snapshot!(output.text, @"the request failed: Connection refused (os error 111)");
}

#[tokio::test]
async fn a_canceled_call_ends() {
    let server = Server::start(vec![Response::silence()]).await.unwrap();
    let tool = web(&["127.0.0.1"]);
    assert_eq!(tool.needs(), Permissions::Full);
    assert!(tool.only_reads());
    let context = ToolContext::default();
    let cancel = CancellationToken::new();
    let arguments = json!({"url": server.url()});
    let call = Call {
        id: "1",
        arguments: arguments.as_object().unwrap(),
        context: &context,
        cancel: &cancel,
        redactor: &fabro_redact::Redactor::default(),
    };
    let ((), output) = tokio::join!(async { cancel.cancel() }, tool.call(call));
    assert_snapshot!(output.text, @"the call was canceled");
}
