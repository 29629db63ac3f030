//! The models that a server lists.

use std::time::Duration;

use reqwest::{Client, Response};
use serde::Deserialize;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::{Provider, failure};
use crate::{ErrorKind, ModelError};

/// How long the list may take: nothing is computed for it.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest list, in bytes; those of resellers with hundreds of models have about one megabyte.
const LARGEST_LIST: usize = 4 << 20;
/// A longer name is not one, in bytes.
const LONGEST_NAME: usize = 256;

#[derive(Deserialize)]
struct List {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    id: String,
}

/// The names of the models that a server lists, in its order.
pub(super) async fn models(
    client: &Client,
    provider: &Provider,
    endpoint: &Endpoint,
) -> Result<Vec<String>, ModelError> {
    let asked = async {
        let headers = endpoint.headers(provider.kind, false);
        let response = client.get(endpoint.list_url()).headers(headers).send().await;
        let response = response.map_err(|error| failure::transport(&error, provider, endpoint))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(failure::redirected(provider, endpoint, response.headers()));
        }
        if status.as_u16() == 404 {
            return Err(failure::own(
                ErrorKind::UnknownModel,
                provider,
                "404: it has no list of models",
            ));
        }
        let headers = response.headers().clone();
        let body = body(response, provider, endpoint).await?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            return Err(failure::refused(provider, "", status.as_u16(), &headers, &text));
        }
        let list: List = serde_json::from_slice(&body).map_err(|error| {
            let what = format!("what it lists are no models: {error}");
            failure::own(ErrorKind::UnusableAnswer, provider, &what)
        })?;
        Ok(names(list))
    };
    let late = || failure::own(ErrorKind::Timeout, provider, "it did not list its models in time");
    timeout(LIST_TIMEOUT, asked).await.unwrap_or_else(|_| Err(late()))
}

fn names(list: List) -> Vec<String> {
    let is_name = |name: &String| {
        !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control)
    };
    let mut names: Vec<String> = Vec::new();
    for name in list.data.into_iter().map(|item| item.id).filter(is_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

async fn body(
    mut response: Response,
    provider: &Provider,
    endpoint: &Endpoint,
) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await;
        match chunk.map_err(|error| failure::transport(&error, provider, endpoint))? {
            None => return Ok(bytes),
            Some(chunk) if bytes.len() + chunk.len() > LARGEST_LIST => {
                let what = format!("its list of models has more than {LARGEST_LIST} bytes");
                return Err(failure::own(ErrorKind::TooLarge, provider, &what));
            }
            Some(chunk) => bytes.extend_from_slice(&chunk),
        }
    }
}
