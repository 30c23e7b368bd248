"""Rows of a dataset: from the Hugging Face hub at a pinned revision, or from a file of the user's.

The hub is read through `datasets` (parquet or JSON lines; no loading script, no trust_remote_code).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError

logger = logging.getLogger(__name__)

Row = dict[str, Any]
EXPECTED = "expected JSON lines (an object per line), a JSON list of objects, or a .parquet file"


@dataclass(frozen=True)
class HubFile:
    """One file of a hub dataset, pinned: `hf://datasets/REPO@REVISION/PATH`."""

    repo: str
    revision: str
    path: str

    @property
    def url(self) -> str:
        return f"https://huggingface.co/datasets/{self.repo}/resolve/{self.revision}/{self.path}"

    @property
    def uri(self) -> str:
        return f"hf://datasets/{self.repo}@{self.revision}/{self.path}"


def hub_rows(file: HubFile, columns: Sequence[str], *, dataset: str) -> list[Row]:
    """The rows of a hub file with the columns it has of `columns`.

    Raises ConfigurationError with one line that names the file to give when the hub cannot be read.
    """
    try:
        import datasets

        builder = "parquet" if file.path.endswith(".parquet") else "json"
        table = datasets.load_dataset(builder, data_files={"rows": file.uri}, split="rows")
        table = table.select_columns([name for name in columns if name in table.column_names])
        return [dict(row) for row in table]
    except Exception as error:  # offline, gated, moved: the remedy is the same
        logger.debug("cannot load %s", file.uri, exc_info=True)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise ConfigurationError(
            f"cannot read {dataset} from the Hugging Face hub ({reason}): download {file.url} on a machine "
            f"with access and give it with --data-file {Path(file.path).name} "
            f"(for --suite: save it as FOLDER/{dataset}{Path(file.path).suffix} and give --data-file FOLDER)"
        ) from None


def data_files(path: str) -> list[Path]:
    """The files that a `--data-file` stands for: itself, or the .jsonl files of a folder in the order of their names.

    Raises ConfigurationError when there is none.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        files = sorted(file for file in place.glob("*.jsonl") if file.is_file())
        if not files:
            raise ConfigurationError(f"--data-file: the folder {path} holds no .jsonl file")
        return files
    if not place.is_file():
        raise ConfigurationError(f"--data-file: there is no file {path}")
    return [place]


def file_rows(path: str, columns: Sequence[str], *, allow_empty: bool = False) -> list[Row]:
    """The rows of a JSON-lines, JSON-list or parquet file (or of a folder of .jsonl files, one after the other),
    with the columns that are there of `columns`.

    Raises ConfigurationError for a file that is missing, without rows or of another form, naming the line.
    """
    rows: list[Row] = []
    for file in data_files(path):
        if file.suffix == ".parquet":
            rows += _parquet_rows(file, columns)
            continue
        found = [{name: row[name] for name in columns if name in row} for row in _json_rows(file)]
        if not found and not allow_empty:
            raise ConfigurationError(f"{file.name} holds no rows: {EXPECTED}")
        rows += found
    return rows


def _parquet_rows(file: Path, columns: Sequence[str]) -> Iterable[Row]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
        known = [name for name in columns if name in table.schema_arrow.names]
        return table.read(columns=known).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigurationError(f"{file.name} is no parquet file ({error}): {EXPECTED}") from None


def _json_rows(file: Path) -> Iterable[Row]:
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file.name} is not UTF-8 text ({error}): {EXPECTED}") from None
    except OSError as error:
        raise ConfigurationError(f"--data-file: cannot read {file}: {error.strerror or error}") from None
    if text.lstrip()[:1] == "[":
        yield from _check_list(file, text)
        return
    # not splitlines(): texts may hold characters that only it takes for line ends
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(f"{file.name}, line {number}: {error}: {EXPECTED}") from None
            if not isinstance(row, dict):
                raise ConfigurationError(f"{file.name}, line {number} is no object: {EXPECTED}")
            yield row


def _check_list(file: Path, text: str) -> list[Row]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file.name}: {error}: {EXPECTED}") from None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ConfigurationError(f"{file.name}, row {number} is no object: {EXPECTED}")
    return rows
