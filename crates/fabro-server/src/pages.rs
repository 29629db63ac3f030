//! The page that exchanges the token of the address for a cookie.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::app::App;

const LOGIN: &str = include_str!("../assets/login.html");
const LOGIN_SCRIPT: &str = include_str!("../assets/login.js");

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(login))
        .route("/assets/login.js", get(login_script))
        .fallback(missing)
}

async fn login() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], LOGIN).into_response()
}

async fn login_script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], LOGIN_SCRIPT).into_response()
}

async fn missing() -> Response {
    (StatusCode::NOT_FOUND, "There is no such page.\n").into_response()
}
