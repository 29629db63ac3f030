use fabro_types::RunId;

/// The identity of a request that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The key that the client chose.
    pub key: String,
    /// A hash of the request: a key cannot be reused for another one.
    pub request: String,
}

/// The result of claiming the key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestClaim {
    /// This process handles the request. It uses this id for a new run, which a crashed process may have created.
    Begin(Option<RunId>),
    /// The request was already answered.
    Answered(String),
    /// Another process is handling the request.
    Busy,
    /// The key was used for another request.
    Differs,
}
