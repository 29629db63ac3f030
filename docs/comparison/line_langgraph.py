"""A line of N steps in LangGraph, each `bash -c true`, each recorded in SQLite before the next: line_langgraph.py N DB [STOP]

With STOP the process ends at that step, as by kill -9; started again, it continues. `steps.log` has a line for each step.
"""

import os
import sqlite3
import subprocess
import sys
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

COUNT = int(sys.argv[1])
STOP = int(sys.argv[3]) if len(sys.argv) > 3 else 0


class State(TypedDict):
    last: int


def step(number):
    def run(state):
        subprocess.run(["bash", "-c", "true"], check=True)
        with open("steps.log", "a") as log:
            log.write(f"{number}\n")
        if number == STOP:
            os._exit(137)
        return {"last": number}

    return run


graph = StateGraph(State)
names = [f"s{number}" for number in range(1, COUNT + 1)]
for number, name in enumerate(names, 1):
    graph.add_node(name, step(number))
for a, b in zip([START, *names], [*names, END]):
    graph.add_edge(a, b)
connection = sqlite3.connect(sys.argv[2], check_same_thread=False)
app = graph.compile(checkpointer=SqliteSaver(connection))
config = {"configurable": {"thread_id": "line"}, "recursion_limit": COUNT + 10}
begun = app.get_state(config).next
result = app.invoke(None if begun else {"last": 0}, config, durability="sync")
assert result["last"] == COUNT
