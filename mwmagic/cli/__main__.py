"""``python -m mwmagic.cli``."""

from __future__ import annotations

import sys

from mwmagic.cli import main

if __name__ == "__main__":
    sys.exit(main())
