//! Logins of browsers: a token for a cookie.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::Body;
use super::json;
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::guard::authorized;
use crate::problem::Problem;

/// A login.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// The token that `fabro serve` printed.
    token: String,
}

/// What the caller may do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Session {
    /// The role of its token.
    role: Role,
}

pub(super) async fn show(
    Extension(caller): Extension<Option<Caller>>,
) -> Result<Response, Problem> {
    let caller = authorized(caller, Role::Read)?;
    Ok(json(&Session { role: caller.role }))
}

pub(super) async fn open(
    State(app): State<Arc<App>>,
    Body(login): Body<Login>,
) -> Result<Response, Problem> {
    let token = login.token.trim();
    let caller = app.tokens.role_of(token).map(|role| Caller { role, by_cookie: true });
    let role = authorized(caller, Role::Read)?.role;
    let cookie = cookie(&app, token, "");
    Ok(([(header::SET_COOKIE, cookie)], json(&Session { role })).into_response())
}

pub(super) async fn close(State(app): State<Arc<App>>) -> Response {
    let cookie = cookie(&app, "", "; Max-Age=0");
    ([(header::SET_COOKIE, cookie)], json(&serde_json::json!({}))).into_response()
}

fn cookie(app: &App, value: &str, more: &str) -> String {
    format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{more}", app.cookie_name)
}
