use std::path::Path;

/// The media type of a file, by its extension.
///
/// ```
/// assert_eq!(fabro_artifacts::media_type("shots/a.PNG"), "image/png");
/// assert_eq!(fabro_artifacts::media_type("data"), "application/octet-stream");
/// ```
pub fn media_type(path: &str) -> &'static str {
    let extension = Path::new(path).extension().and_then(|it| it.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "webm" => "video/webm",
        "mp4" => "video/mp4",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "xml" => "application/xml",
        "json" | "har" => "application/json",
        "jsonl" => "application/jsonl",
        "yml" | "yaml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "wasm" => "application/wasm",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        _ => "application/octet-stream",
    }
}
