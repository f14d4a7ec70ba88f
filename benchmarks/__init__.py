"""What mwmagic's speed is compared with: each row of one table is a ratio measured in one run.

``python -m benchmarks`` measures all rows, ``python -m benchmarks restart first-step`` those whose
names begin so, and ``--list`` names them. The package is no part of what is installed.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))  # what tests share
