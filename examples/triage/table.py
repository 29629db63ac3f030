import csv
import json
import os
import pathlib

labels = json.loads(os.environ["LABELS"])
labels.sort(key=lambda label: (label["priority"], label["id"]))
path = pathlib.Path(os.environ["FABRO_RUN_DIR"], "triage.csv")
with path.open("w", newline="") as file:
    table = csv.DictWriter(file, ["priority", "id", "label", "reason"])
    table.writeheader()
    table.writerows(labels)
print(f"{path}\n{path.read_text()}", end="")
