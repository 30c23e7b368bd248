"""`report.html`: a run or an optimization job as ONE file that opens from disk and asks the network for nothing.

    python -m metrics.report FOLDER...            # runs and jobs, also unfinished ones; several: a comparison, too
    from metrics.report import write_report

Made from the saved files alone (docs/results.md), so it can be made again at any later time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metrics.errors import ConfigurationError
from metrics.run_folder import REPORT

if TYPE_CHECKING:
    from metrics.report.page import Page

logger = logging.getLogger(__name__)


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into a run or job folder; its path.

    Works for finished, interrupted and killed ones. ConfigurationError: the folder is neither, or cannot be written.
    """
    from metrics.report.page import build_page

    path = Path(folder)
    return _write(path / REPORT, build_page(_page_of(path)))


def write_comparison(folders: Sequence[str | Path], path: str | Path) -> Path:
    """Write one page over several jobs, or several runs, to `path`. ConfigurationError as for `write_report`."""
    from metrics.report.comparison import comparison
    from metrics.report.page import build_page

    return _write(Path(path), build_page(comparison([Path(folder) for folder in folders])))


def try_report(folder: str | Path) -> Path | None:
    """`write_report` for the end of a run: whatever goes wrong is one warning, never the loss of a result."""
    try:
        return write_report(folder)
    except Exception as error:
        logger.warning(
            "no report was written (%s: %s); `python -m metrics.report FOLDER` tries again", type(error).__name__, error
        )
        return None


def try_plots(folder: str | Path) -> None:
    """`write_plots` for the end of a run: what goes wrong is one warning."""
    from metrics.report.plots import write_plots

    try:
        write_plots(folder)
    except Exception as error:
        logger.warning("no plots were written (%s: %s)", type(error).__name__, error)


def _page_of(path: Path) -> Page:
    from metrics.report.files import is_job, is_run

    if is_job(path):
        from metrics.report.job import job_page

        return job_page(path)
    if is_run(path):
        from metrics.report.run import run_page

        return run_page(path)
    raise ConfigurationError(f"{path} is neither a run (results.jsonl) nor a job (job.json)")


def _write(path: Path, data: bytes) -> Path:
    from metrics.jsonio import write_atomic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, sync=False)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from error
    return path
