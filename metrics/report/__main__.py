"""`python -m metrics.report FOLDER...`: reports, comparisons and plots from saved files."""

from __future__ import annotations

import sys

from metrics.report.command import main

if __name__ == "__main__":
    sys.exit(main())
