use fabro_types::RunId;

/// What makes two requests the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The key that the client chose.
    pub key: String,
    /// A hash of what is requested: a key stands for one request.
    pub request: String,
}

/// What is known of a request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestClaim {
    /// This process has to handle it. It creates this run, which a process that ended in the middle may have created.
    Begin(Option<RunId>),
    /// It has been answered.
    Answered(String),
    /// Another process handles it at the moment.
    Busy,
    /// The key was used for another request.
    Differs,
}
