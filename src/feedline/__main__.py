"""`python -m feedline`. Guarded, because worker processes that are spawned import it again."""

from __future__ import annotations

import sys

from feedline.cli import main

if __name__ == "__main__":
    sys.exit(main())
