//! The style and the scripts of the pages.

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use super::missing;

const LOGIN_SCRIPT: &str = include_str!("../../assets/login.js");
const SCRIPT: &str = include_str!("../../assets/page.js");
const STYLE: &str = include_str!("../../assets/server.css");

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: Cow<'static, str>,
}

static ASSETS: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    let script = |name, text| Asset {
        name,
        kind: "text/javascript; charset=utf-8",
        text: Cow::Borrowed(text),
    };
    let style = fabro_page::style() + STYLE;
    [
        Asset { name: "page.css", kind: "text/css; charset=utf-8", text: style.into() },
        script("page.js", SCRIPT),
        script("list.js", fabro_page::list_script()),
        script("login.js", LOGIN_SCRIPT),
    ]
});

/// Changes with every asset. It is a part of their addresses in pages, so that a browser asks for each of them once.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for asset in &*ASSETS {
        hash.update(asset.name);
        hash.update(&*asset.text);
    }
    let hash = hash.finalize();
    let [a, b, c, d, e, f, ..] = hash[..] else { unreachable!("SHA-256 has 32 bytes") };
    format!("{:012x}", u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
});

/// For templates: where the assets of this version are.
pub(super) fn folder() -> String {
    format!("/assets/{}", *VERSION)
}

/// An asset for a page that names no version.
pub(super) async fn current(Path(name): Path<String>) -> Response {
    asset("", &name).await
}

/// An asset for a page of this server, or of one before it.
pub(super) async fn versioned(Path((version, name)): Path<(String, String)>) -> Response {
    asset(&version, &name).await
}

/// Only this version may be kept: for another one, the asset of now is given.
async fn asset(version: &str, name: &str) -> Response {
    let Some(asset) = ASSETS.iter().find(|it| it.name == name) else { return missing().await };
    let cache =
        if version == *VERSION { "private, max-age=31536000, immutable" } else { "no-store" };
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, cache)];
    (headers, &*asset.text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn only_the_current_version_is_kept_by_browsers() {
        let check = async |version: &str, name: &str, expect: Option<&str>| {
            let response = asset(version, name).await;
            let is_there = response.status() == StatusCode::OK;
            assert_eq!(is_there, expect.is_some(), "{version} {name}");
            let cache = response.headers().get(header::CACHE_CONTROL);
            let cache = cache.map(|value| value.to_str().unwrap());
            assert_eq!(cache, expect, "{version} {name}");
        };
        let kept = "private, max-age=31536000, immutable";
        for asset in &*ASSETS {
            check(&VERSION, asset.name, Some(kept)).await;
            check("", asset.name, Some("no-store")).await;
            check("0123456789ab", asset.name, Some("no-store")).await;
        }
        check(&VERSION, "page.html", None).await;
        assert_eq!(VERSION.len(), 12);
    }
}
