//! A server over stdio, in plain JSON, whose tools misbehave as their arguments say. The tests of this
//! crate talk to it; it also shows how little a server has to do.
#![expect(clippy::exit, clippy::print_stderr, reason = "it fails as real servers do")]

use std::io::{BufRead, Write};

use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    match mode.as_str() {
        "crash" => {
            eprint!("loading\nno config found\n");
            std::process::exit(3);
        }
        "garbage" => say("Welcome to the server!\n{\"half\": \n[1,2]\n\u{7}"),
        "endless" => while std::io::stdout().write_all(&[b'x'; 8192]).is_ok() {},
        _ => {}
    }
    let mut canceled = 0;
    let mut initialized = false;
    for line in std::io::stdin().lock().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
        let Some(id) = request.get("id").cloned() else {
            canceled += u32::from(request["method"] == "notifications/cancelled");
            continue;
        };
        if mode == "strict" && !initialized && request["method"] != "initialize" {
            std::process::exit(5);
        }
        initialized = true;
        if mode == "silent" {
            eprintln!("thinking");
            continue;
        }
        let answer = match request["method"].as_str() {
            Some("initialize") if mode == "refuse" => Err("not today"),
            Some("initialize") => Ok(json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
                "instructions": "Be gentle.",
            })),
            Some("tools/list") if mode == "listless" => continue,
            Some("tools/list") => Ok(page(&request["params"]["cursor"])),
            Some("tools/call") if request["params"]["name"] == "dawdle" => continue,
            Some("tools/call") if request["params"]["name"] == "canceled" => {
                let text = json!({"type": "text", "text": canceled.to_string()});
                Ok(json!({"content": [text]}))
            }
            Some("tools/call") => call(&request["params"])?,
            _ => Err("no such method"),
        };
        let answer = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(message) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": message}})
            }
        };
        say(&answer.to_string());
    }
    Ok(())
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        // The client has closed the pipe.
        std::process::exit(0);
    }
}

/// Two pages of tools.
fn page(cursor: &Value) -> Value {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    if cursor.is_null() {
        let schema = json!({"properties": {"text": {"type": "string"}}, "required": ["text"]});
        let echo = json!({"name": "echo", "description": "Says it again", "inputSchema": schema});
        let mut once = tool("die once");
        once["annotations"] = json!({"readOnlyHint": true});
        return json!({"tools": [echo, once], "nextCursor": "2"});
    }
    let names = [
        "env", "fail", "hang", "die", "huge", "flood", "garbage", "leave", "dawdle", "unknown",
        "canceled", "steady",
    ];
    json!({"tools": names.map(tool)})
}

fn call(params: &Value) -> std::io::Result<Result<Value, &'static str>> {
    let text = params["arguments"]["text"].as_str().unwrap_or_default();
    let echo = || format!("{} {}", text, params["_meta"]["fabro/context"]);
    let said = match params["name"].as_str().unwrap_or_default() {
        "echo" => echo(),
        "env" => {
            let variables = std::env::vars().map(|(name, value)| format!("{name}={value}"));
            variables.collect::<Vec<_>>().join("\n")
        }
        "fail" => {
            let content = json!([{"type": "text", "text": "no such file"}]);
            return Ok(Ok(json!({"content": content, "isError": true})));
        }
        "hang" => loop {
            std::thread::park();
        },
        "die once" if std::path::Path::new(text).exists() => "alive".to_owned(),
        "die once" => {
            std::fs::write(text, "")?;
            std::process::exit(1);
        }
        "die" => {
            eprintln!("out of memory");
            std::process::exit(7);
        }
        "huge" => "x".repeat(text.parse().unwrap_or_default()),
        "flood" => {
            for number in 0..10_000 {
                let params = json!({"level": "info", "data": number});
                let method = "notifications/message";
                say(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
            }
            echo()
        }
        "steady" => {
            for progress in 1..=12 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                let token = &params["_meta"]["progressToken"];
                let params = json!({"progressToken": token, "progress": progress});
                let method = "notifications/progress";
                say(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
            }
            "done".to_owned()
        }
        "garbage" => {
            say("} not json {\n\"text\"\n{\"jsonrpc\": \"2.0\", \"id\": 999, \"result\": {}}");
            echo()
        }
        "leave" => {
            let child = std::process::Command::new("sleep").arg("600").spawn()?;
            child.id().to_string()
        }
        _ => return Ok(Err("no such tool")),
    };
    Ok(Ok(json!({"content": [{"type": "text", "text": said}]})))
}
