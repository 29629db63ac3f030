"""Checks a file of sales, and prints its region and its total as JSON."""

import csv
import json
import pathlib
import sys
from decimal import Decimal

path = pathlib.Path(sys.argv[1])
with path.open(newline="") as file:
    rows = list(csv.DictReader(file))
for line, row in enumerate(rows, start=2):
    if Decimal(row["amount"]) < 0:
        sys.exit(f"{path.name}:{line}: the amount {row['amount']} is negative")
print(json.dumps({"region": path.stem, "total": str(sum(Decimal(row["amount"]) for row in rows))}))
