set -eu
python3 -B -m py_compile stats.py
python3 -B -m unittest
