"""The workflow of fix.fabro in DBOS: fix_dbos.py DB [ANSWER]

The model's answer is the program in fixed.py; a real one would take its place in `fix`.
"""

import os
import pathlib
import subprocess
import sys

from dbos import DBOS, SetWorkflowID


@DBOS.step()
def test():
    done = subprocess.run([sys.executable, "-B", "-m", "unittest"], capture_output=True, text=True)
    return done.returncode == 0


@DBOS.step()
def fix():
    pathlib.Path("price.py").write_text(pathlib.Path("fixed.py").read_text())


@DBOS.workflow()
def work():
    for _ in range(5):
        if not test():
            fix()
            continue
        DBOS.set_event("question", "Keep this fix? Keep or Change")
        answer = DBOS.recv("answer", timeout_seconds=7 * 86400)
        if answer == "Keep":
            return answer
        fix()
    raise RuntimeError("the tests still fail after 5 visits")


DBOS(config={"name": "fix", "system_database_url": f"sqlite:///{sys.argv[1]}", "log_level": "ERROR"})
DBOS.launch()
with SetWorkflowID("fix"):
    handle = DBOS.start_workflow(work)
if len(sys.argv) > 2:
    DBOS.send("fix", sys.argv[2], topic="answer")
    print(f"ended: {handle.get_result()}")
else:
    DBOS.get_event("fix", "question", timeout_seconds=600)
    print("waits for an answer", flush=True)
    # The thread of the workflow waits for the answer, and would keep the process.
    os._exit(0)
DBOS.destroy()
