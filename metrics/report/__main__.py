"""`python -m metrics.report FOLDER...`: reports, comparisons and plots from saved files."""

from __future__ import annotations

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()

from metrics.command import run_main
from metrics.report.command import main

if __name__ == "__main__":
    run_main(main)
