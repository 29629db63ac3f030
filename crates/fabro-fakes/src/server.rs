use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::http::{self, Request};
use crate::response::Response;
use crate::wire::Protocol;

const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// A server that plays a script. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    answers: Answers,
    history: Mutex<History>,
}

enum Answers {
    Script(Vec<Response>),
    By(Box<dyn Fn(&Request) -> Response + Send + Sync>),
}

#[derive(Default)]
struct History {
    requests: Vec<Request>,
    /// How many responses each path has had; under `None` the paths without responses of their own.
    played: BTreeMap<Option<String>, usize>,
}

impl Server {
    /// Starts on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// No port is available.
    pub async fn start(script: Vec<Response>) -> io::Result<Self> {
        Self::start_on(ANY_PORT.into(), script).await
    }

    /// Starts at this address.
    ///
    /// # Errors
    ///
    /// The address is not available.
    pub async fn start_on(address: SocketAddr, script: Vec<Response>) -> io::Result<Self> {
        Self::listen(address, Answers::Script(script)).await
    }

    /// Starts on a free port of 127.0.0.1, and calls `answer` for every response, which may depend on
    /// the request.
    ///
    /// # Errors
    ///
    /// No port is available.
    pub async fn answering(
        answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::listen(ANY_PORT.into(), Answers::By(Box::new(answer))).await
    }

    async fn listen(address: SocketAddr, answers: Answers) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { answers, history: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base URL that a client of either protocol is given: [`Server::url`] and `/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// The requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.history.lock().requests.clone()
    }

    /// Removes and returns the requests so far.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.history.lock().requests)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, so that connections end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(answer(socket, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// An error here is one of the connection: the client sees it too, and its test fails.
async fn answer(mut socket: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let Some(request) = http::read(&mut socket).await? else { return Ok(()) };
    let protocol = Protocol::of(&request.path);
    let streamed =
        request.json()["stream"] == true || request.path.contains(":streamGenerateContent");
    let wire = shared.next(request).render(protocol, streamed);
    http::write(socket, wire).await
}

/// What a server lists that has a single model.
const LIST: &str = r#"{"object": "list", "data": [{"id": "default", "object": "model"}]}"#;

impl Shared {
    /// A request for the list of models, which the script does not answer itself. It is not recorded: what asks a model
    /// decides when the list is needed.
    fn is_list(&self, request: &Request) -> bool {
        let path = request.path.split('?').next().unwrap_or_default();
        let is_own = match &self.answers {
            Answers::Script(script) => script.iter().any(|it| it.path() == Some(path)),
            Answers::By(_) => false,
        };
        request.method == "GET" && path.ends_with("/models") && !is_own
    }

    fn next(&self, request: Request) -> Response {
        if self.is_list(&request) {
            return Response::bytes(200, "application/json", LIST);
        }
        let script = match &self.answers {
            Answers::Script(script) => script,
            Answers::By(answer) => {
                let response = answer(&request);
                self.history.lock().requests.push(request);
                return response;
            }
        };
        let path = request.path.split('?').next().unwrap_or_default();
        let own = script.iter().any(|response| response.path() == Some(path));
        let key = own.then(|| path.to_owned());
        let list: Vec<_> =
            script.iter().filter(|response| response.path() == key.as_deref()).collect();
        let mut history = self.history.lock();
        history.requests.push(request);
        let played = history.played.entry(key).or_default();
        let index = (*played).min(list.len().saturating_sub(1));
        *played += 1;
        match list.get(index) {
            Some(response) => (*response).clone(),
            None => Response::bytes(404, "text/plain", "the script has no response for this path"),
        }
    }
}
