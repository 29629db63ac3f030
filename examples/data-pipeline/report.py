"""Merges the totals of the regions into report.csv, in the run's directory."""

import json
import os
import pathlib
from decimal import Decimal

totals = [json.loads(text) for text in json.loads(os.environ["TOTALS"])]
report = pathlib.Path(os.environ["FABRO_RUN_DIR"], "report.csv")
with report.open("w") as file:
    for total in totals:
        file.write(f"{total['region']},{total['total']}\n")
    file.write(f"total,{sum(Decimal(total['total']) for total in totals)}\n")
print(report.read_text(), end="")
