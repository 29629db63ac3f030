//! The description of the API (`OpenAPI` 3.1), made from its types. `docs/openapi.json` is a copy of it for readers, and
//! `openapi.json` of this crate the one that the server sends; a test compares them.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api::types::{
    Answer, ArtifactQuery, Cancel, Canceled, ContextQuery, DiffQuery, Done, EventQuery, Fork,
    Forked, LogQuery, Login, Removed, Resume, Rewind, RunQuery, Session, Start, Started, Steer,
};
use crate::auth::Role;
use crate::monitoring::{HEALTH, METRICS};
use crate::problem::Problem;

struct Api {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

/// One method of one address.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// `None` where no token is needed.
    role: Option<Role>,
    query: Option<Schema>,
    body: Option<Schema>,
    media: &'static str,
    response: Schema,
}

/// What `fabro COMMAND --json` prints.
fn printed(command: &str, kind: &str) -> Schema {
    let description = format!(
        "What `{command}` prints: docs/command-line.md has its fields. New fields may be added."
    );
    match json!({"type": kind, "description": description}) {
        Value::Object(object) => object.into(),
        _ => Schema::default(),
    }
}

fn text(description: &str) -> Schema {
    match json!({"type": "string", "description": description}) {
        Value::Object(object) => object.into(),
        _ => Schema::default(),
    }
}

/// The statuses of an operation. None is left to a default, so that a client can check what it gets.
fn responses(operation: &Operation) -> Value {
    let Operation { method, path, id, query, body, media, response, .. } = operation;
    let of_run = path.contains("{run}");
    let is_change = *method == "post" && of_run;
    let mut content = json!({*media: {"schema": response}});
    if *id == "getEvents" {
        let stream = "The events as they are committed, as server-sent events.";
        content["text/event-stream"] = json!({"schema": text(stream)});
    }
    let mut result = json!({"description": "The result.", "content": content});
    let header = |name: &str, description: &str| json!({name: {"description": description, "schema": {"type": "string"}}});
    match *id {
        "getRun" | "getStage" => {
            result["headers"] =
                header("ETag", "The last sequence number of the run, for If-Match.");
        }
        "logIn" | "logOut" => result["headers"] = header("Set-Cookie", "The cookie of the login."),
        _ => {}
    }
    let mut responses = Map::new();
    let replayed = "The first answer to this Idempotency-Key; nothing was started.";
    match *id {
        "startRun" => {
            let mut again = result.clone();
            again["description"] = json!(replayed);
            again["headers"] = header("Idempotency-Replayed", "`true`");
            responses.extend([("200".to_owned(), again), ("201".to_owned(), result)]);
        }
        "resumeRun" | "forkRun" => {
            result["headers"] = header("Idempotency-Replayed", replayed);
            responses.insert("200".to_owned(), result);
        }
        _ => {
            responses.insert("200".to_owned(), result);
        }
    }
    let mut refused = vec![401, 403, 408, 413, 421];
    if path.contains('{') {
        refused.extend([400, 404, 422]);
    }
    if query.is_some() || body.is_some() {
        refused.push(422);
    }
    if body.is_some() {
        refused.push(415);
    }
    if is_change || path.ends_with("{stage}") || query.is_some() && of_run {
        refused.push(409);
    }
    match *id {
        "startRun" => refused.extend([404, 409]),
        "removeRun" => refused.push(409),
        "followChanges" => refused.push(406),
        _ if is_change => refused.push(412),
        _ => {}
    }
    refused.sort_unstable();
    refused.dedup();
    let problem = json!({"$ref": "#/components/responses/Problem"});
    let refused = refused.iter().map(ToString::to_string).chain(["5XX".to_owned()]);
    responses.extend(refused.map(|status| (status, problem.clone())));
    let too_large = json!({"description": "The headers are too large; sent without a body."});
    responses.insert("431".to_owned(), too_large);
    responses.into()
}

impl Api {
    fn of<T: JsonSchema>(&mut self) -> Schema {
        self.generator.subschema_for::<T>()
    }

    /// A query as parameters needs its properties, not a reference.
    fn query<T: JsonSchema>(&self) -> Schema {
        self.generator.clone().into_root_schema_for::<T>()
    }

    fn add(&mut self, operation: &Operation) {
        let Operation { method, path, id, summary, role, query, body, .. } = operation;
        let method = *method;
        let path = *path;
        let id = *id;
        let mut parameters = Vec::new();
        for part in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = part.trim_end_matches('}');
            let description = match name {
                "run" => "A run: its id, the beginning of it, or `latest`.",
                "stage" => "A stage: `[BRANCH/]NODE[@VISIT]`; a `/` is written as it is.",
                _ => "The SHA-256 of the artifact, in hexadecimal digits.",
            };
            let mut parameter = json!({"name": name, "in": "path", "required": true,
                "description": description, "schema": {"type": "string", "minLength": 1}});
            if name == "run" {
                parameter["example"] = json!("latest");
            }
            parameters.push(parameter);
        }
        let properties = query.as_ref().and_then(|query| query.get("properties")?.as_object());
        for (name, schema) in properties.into_iter().flatten() {
            parameters.push(json!({"name": name, "in": "query", "schema": schema}));
        }
        if method == "post" && path.starts_with("/runs") {
            let is_start = matches!(id, "startRun" | "resumeRun" | "forkRun");
            let key = json!({"name": "Idempotency-Key", "in": "header", "schema": {"type": "string",
                "minLength": 1, "maxLength": 255}, "description": "A repeated request with the same key gets the \
                first answer for 24 hours, and starts nothing."});
            let tag = json!({"name": "If-Match", "in": "header", "schema": {"type": "string"},
                "description": "The ETag of the run: the request is refused when the run has changed."});
            parameters.extend(is_start.then_some(key));
            parameters.extend((id != "startRun").then_some(tag));
        }
        let mut value = json!({
            "operationId": id,
            "summary": summary,
            "parameters": parameters,
            "responses": responses(operation),
        });
        if let Some(body) = body {
            let content = json!({"application/json": {"schema": body}});
            value["requestBody"] = json!({"content": content});
        }
        match role {
            Some(role) => value["description"] = json!(format!("Needs the role `{role}`.")),
            None => value["security"] = json!([]),
        }
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        item[method] = value;
    }

    fn get(
        &mut self,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        query: Option<Schema>,
        response: Schema,
    ) {
        let media = match id {
            "getDiff" => "text/plain",
            "getReport" => "text/html",
            "getLogs" => "application/x-ndjson",
            "getArtifact" => "application/octet-stream",
            "followChanges" => "text/event-stream",
            _ => "application/json",
        };
        let role = Some(Role::Read);
        let (method, body) = ("get", None);
        self.add(&Operation { method, path, id, summary, role, query, body, media, response });
    }

    fn post<T: JsonSchema, R: JsonSchema>(
        &mut self,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        role: Role,
    ) {
        let body = Some(self.of::<T>());
        let response = self.of::<R>();
        self.add(&Operation {
            method: "post",
            path,
            id,
            summary,
            role: Some(role),
            query: None,
            body,
            media: "application/json",
            response,
        });
    }

    fn reports(&mut self) {
        let page = json!({"type": "object", "required": ["runs", "next"], "properties": {
            "runs": printed("fabro ps --json", "array"),
            "next": {"type": ["string", "null"], "description": "The cursor of the next page."},
            "warnings": {"type": "array", "items": {"type": "string"}},
        }});
        let page = Schema::try_from(page).unwrap();
        let query = Some(self.query::<RunQuery>());
        self.get("/runs", "listRuns", "The runs of the store, newest first.", query, page);
        let run = printed("fabro inspect RUN --json", "object");
        self.get(
            "/runs/{run}",
            "getRun",
            "A run. Its ETag is its last sequence number.",
            None,
            run,
        );
        let stage = printed("fabro inspect RUN STAGE --json", "object");
        self.get("/runs/{run}/stages/{stage}", "getStage", "A stage.", None, stage);
        let why = printed("fabro explain RUN STAGE --json", "object");
        let summary = "Why an edge was taken after a stage.";
        self.get("/runs/{run}/explain/{stage}", "explainStage", summary, None, why);
        let query = Some(self.query::<ContextQuery>());
        let context = Schema::try_from(json!({"anyOf": [
            printed("fabro context RUN --json", "object"),
            printed("fabro context RUN --diff A B --json", "array"),
        ]}));
        let summary = "The context of a run, or its changes between two stages.";
        self.get("/runs/{run}/context", "getContext", summary, query, context.unwrap());
        let query = Some(self.query::<DiffQuery>());
        let changed = text("A patch, empty when no file was changed.");
        self.get("/runs/{run}/diff", "getDiff", "The files that a run changed.", query, changed);
        let query = Some(self.query::<EventQuery>());
        let events = printed("fabro events RUN --json", "array");
        let summary = "A page of events; with `Accept: text/event-stream` all that follow `after` or \
            `Last-Event-ID`, as they are committed.";
        self.get("/runs/{run}/events", "getEvents", summary, query, events);
        let query = Some(self.query::<LogQuery>());
        let lines = text("What `fabro logs RUN --json` prints, an object a line.");
        self.get("/runs/{run}/logs", "getLogs", "What stages wrote.", query, lines);
        let query = Some(self.query::<ArtifactQuery>());
        let rows = printed("fabro artifact list RUN --json", "array");
        self.get("/runs/{run}/artifacts", "listArtifacts", "The artifacts of a run.", query, rows);
        let html = text("A page that needs no server, as `fabro report RUN` writes it.");
        let summary = "A run as one HTML file, as a download.";
        self.get("/runs/{run}/report", "getReport", summary, None, html);
        let bytes = text("The bytes of the file.");
        let path = "/runs/{run}/artifacts/{sha256}";
        self.get(path, "getArtifact", "An artifact, as a download.", None, bytes);
        let gate = json!({
            "type": "object",
            "required": ["run", "workflow", "status", "name"],
            "description": "A gate as `fabro inspect RUN --json` has it, and what an answer needs.",
            "properties": {
                "run": {"type": "string", "description": "The run to answer."},
                "workflow": {"type": "string"},
                "status": {"type": "string", "description": "The status of the run."},
                "name": {"type": "string", "description": "The name of the gate in an answer."},
            },
        });
        let unreadable = json!({
            "type": "object",
            "required": ["run", "workflow", "code", "detail", "fix"],
            "description": "A run that may have other gates: its log cannot be read.",
            "properties": {
                "run": {"type": "string"},
                "workflow": {"type": "string"},
                "code": {"type": "string", "description": "As of an error; `store_busy` is over in a moment."},
                "detail": {"type": "string"},
                "fix": {"type": "string"},
            },
        });
        let gates = Schema::try_from(json!({
            "type": "object",
            "required": ["gates"],
            "properties": {
                "gates": {"type": "array", "items": gate},
                "unreadable": {"type": "array", "items": unreadable},
            },
        }));
        self.get("/gates", "listGates", "The gates that wait for a person.", None, gates.unwrap());
        let names = self.of::<Vec<String>>();
        self.get(
            "/workflows",
            "listWorkflows",
            "The workflows of the project: names, and files of its folder.",
            None,
            names,
        );
        let ticks = text("An event `changed` after each change of any run.");
        self.get("/changes", "followChanges", "When to read lists again.", None, ticks);
    }

    fn changes(&mut self) {
        let (admin, answer) = (Role::Admin, Role::Answer);
        self.post::<Start, Started>("/runs", "startRun", "Start a run in the background.", admin);
        self.post::<Answer, Done>("/runs/{run}/answer", "answerGate", "Answer a gate.", answer);
        let summary = "Send a message to agents.";
        self.post::<Steer, Done>("/runs/{run}/steer", "steerRun", summary, admin);
        self.post::<Cancel, Canceled>("/runs/{run}/cancel", "cancelRun", "Cancel a run.", admin);
        let summary = "Resume a run in the background.";
        self.post::<Resume, Started>("/runs/{run}/resume", "resumeRun", summary, admin);
        let summary = "Copy a run up to the end of a stage.";
        self.post::<Fork, Forked>("/runs/{run}/fork", "forkRun", summary, admin);
        let summary = "Take a run back to the end of a stage.";
        self.post::<Rewind, Forked>("/runs/{run}/rewind", "rewindRun", summary, admin);
        let removed = self.of::<Removed>();
        self.add(&Operation {
            method: "delete",
            path: "/runs/{run}",
            id: "removeRun",
            summary: "Remove a run that is not driven, with everything that it recorded.",
            role: Some(admin),
            query: None,
            body: None,
            media: "application/json",
            response: removed,
        });
        let session = self.of::<Session>();
        let body = Some(self.of::<Login>());
        self.add(&Operation {
            method: "post",
            path: "/session",
            id: "logIn",
            summary: "Exchange a token for a cookie.",
            role: None,
            query: None,
            body,
            media: "application/json",
            response: session.clone(),
        });
        self.get("/session", "getSession", "What the caller may do.", None, session);
        let nothing = Schema::try_from(json!({"type": "object"})).unwrap();
        self.add(&Operation {
            method: "delete",
            path: "/session",
            id: "logOut",
            summary: "Remove the cookie.",
            role: None,
            query: None,
            body: None,
            media: "application/json",
            response: nothing,
        });
    }
}

/// Paths for monitoring, which are outside of `/api/v1`.
fn monitoring() -> [(&'static str, Value); 2] {
    let operation = |id: &str, summary: &str, description: &str| {
        json!({"operationId": id, "summary": summary, "responses": {"200": {
            "description": "The result.",
            "content": {"text/plain": {"schema": text(description)}},
        }}})
    };
    let mut health =
        operation("getHealth", "Liveness of the server.", "`ok`, for any Host, without a token.");
    health["security"] = json!([]);
    let mut metrics = operation(
        "getMetrics",
        "Metrics of the store and of the server.",
        "The text format of Prometheus; docs/server.md lists the metrics.",
    );
    metrics["description"] = json!(format!("Needs the role `{}`.", Role::Read));
    let problem = json!({"$ref": "#/components/responses/Problem"});
    for status in ["401", "403", "408", "413", "421", "5XX"] {
        metrics["responses"][status] = problem.clone();
    }
    [(HEALTH, health), (METRICS, metrics)]
        .map(|(path, get)| (path, json!({"servers": [{"url": "/"}], "get": get})))
}

fn description() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut api = Api { generator: settings.into_generator(), paths: Map::new() };
    api.reports();
    api.changes();
    api.paths.extend(monitoring().map(|(path, value)| (path.to_owned(), value)));
    let problem = api.of::<Problem>();
    let schemas = api.generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fabro",
            "version": "1",
            "description": "The runs of a store. docs/server.md describes tokens, roles and codes of problems.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}, {"cookie": []}],
        "paths": api.paths,
        "components": {
            "schemas": schemas,
            "responses": {"Problem": {
                "description": "What is wrong, and what to do.",
                "content": {"application/problem+json": {"schema": problem}},
            }},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "fabro-PORT"},
            },
        },
    })
}

/// With `FABRO_BLESS=1` the files are written.
#[test]
fn the_description_is_that_of_the_types() {
    let description = description();
    for (path, text) in [
        ("../../docs/openapi.json", serde_json::to_string_pretty(&description).unwrap() + "\n"),
        // What the server sends: half as long.
        ("openapi.json", description.to_string()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("FABRO_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert!(committed == text, "{} is old: run this test with FABRO_BLESS=1", path.display());
    }
}

#[test]
fn every_route_is_described() {
    let api = description();
    let source = include_str!("api/mod.rs");
    let routes = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    for route in routes.filter(|route| *route != "/openapi.json") {
        let path = route.replace("{*", "{");
        assert!(api["paths"].get(&path).is_some(), "{route}");
    }
}
