"""The workflow of fix.fabro in LangGraph: fix_langgraph.py DB [ANSWER]

The model's answer is the program in fixed.py; a real one would take its place in `fix`.
"""

import pathlib
import sqlite3
import subprocess
import sys
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class State(TypedDict, total=False):
    passed: bool
    output: str
    visits: int
    answer: str


def test(state):
    visits = state.get("visits", 0) + 1
    if visits > 5:
        raise RuntimeError("the tests still fail after 5 visits")
    done = subprocess.run([sys.executable, "-B", "-m", "unittest"], capture_output=True, text=True)
    return {"passed": done.returncode == 0, "output": done.stderr, "visits": visits}


def fix(state):
    pathlib.Path("price.py").write_text(pathlib.Path("fixed.py").read_text())
    return {}


def ask(state):
    return {"answer": interrupt("Keep this fix? Keep or Change")}


graph = StateGraph(State)
for node in (test, fix, ask):
    graph.add_node(node)
graph.add_edge(START, "test")
graph.add_conditional_edges("test", lambda state: "ask" if state["passed"] else "fix", ["ask", "fix"])
graph.add_edge("fix", "test")
graph.add_conditional_edges("ask", lambda state: END if state["answer"] == "Keep" else "fix", [END, "fix"])
connection = sqlite3.connect(sys.argv[1], check_same_thread=False)
app = graph.compile(checkpointer=SqliteSaver(connection))
config = {"configurable": {"thread_id": "fix"}}
result = app.invoke(Command(resume=sys.argv[2]) if len(sys.argv) > 2 else {}, config, durability="sync")
print("waits for an answer" if "__interrupt__" in result else f"ended: {result['answer']}")
