"""A line of N steps in DBOS, each `bash -c true`, each recorded in SQLite before the next: line_dbos.py N DB [STOP]

With STOP the process ends at that step, as by kill -9; started again, it continues. `steps.log` has a line for each step.
"""

import os
import subprocess
import sys

from dbos import DBOS, SetWorkflowID

COUNT = int(sys.argv[1])
STOP = int(sys.argv[3]) if len(sys.argv) > 3 else 0


@DBOS.step()
def step(number):
    subprocess.run(["bash", "-c", "true"], check=True)
    with open("steps.log", "a") as log:
        log.write(f"{number}\n")
    if number == STOP:
        os._exit(137)
    return number


@DBOS.workflow()
def line():
    last = 0
    for number in range(1, COUNT + 1):
        last = step(number)
    return last


DBOS(config={"name": "line", "system_database_url": f"sqlite:///{sys.argv[2]}", "log_level": "ERROR"})
DBOS.launch()
# A workflow of the same id that was interrupted has been recovered by launch(); this waits for it.
with SetWorkflowID("line"):
    handle = DBOS.start_workflow(line)
assert handle.get_result() == COUNT
DBOS.destroy()
