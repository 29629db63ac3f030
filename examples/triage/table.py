import csv
import json
import os

labels = json.loads(os.environ["LABELS"])
labels.sort(key=lambda label: (label["priority"], label["id"]))
with open("triage.csv", "w", newline="") as file:
    table = csv.DictWriter(file, ["priority", "id", "label", "reason"])
    table.writeheader()
    table.writerows(labels)
print(open("triage.csv").read())
