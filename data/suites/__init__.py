"""Suites: published tables as data, one JSON file each: systems (a program and its options), datasets, their numbers.

A file names programs and datasets; only the command line gives these names a meaning.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from metrics.errors import ConfigurationError
from metrics.jsonio import read_json
from metrics.suite import Suite

_SUFFIXES = (".jsonl", ".json", ".parquet")


def suite_names() -> list[str]:
    """The suites that come with the product."""
    files = resources.files("data.suites").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_suite(name: str) -> Suite:
    """A suite by name; ConfigurationError lists the known ones."""
    if name not in suite_names():
        raise ConfigurationError(f"unknown suite {name!r}: choose one of {', '.join(suite_names())}")
    return Suite.from_dict(read_json(Path(str(resources.files("data.suites").joinpath(f"{name}.json")))))


def suite_data_file(folder: str, dataset: str) -> str:
    """The rows of one dataset in a folder for several: FOLDER/DATASET.jsonl (.json, .parquet), else FOLDER/DATASET/.

    Raises ConfigurationError when there is neither, or no folder.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ConfigurationError(f"--data-file: a suite needs a folder with its datasets, {folder} is none")
    for path in [*(place / f"{dataset}{suffix}" for suffix in _SUFFIXES), place / dataset]:
        if path.exists():
            return str(path)
    raise ConfigurationError(f"--data-file: {folder} has neither {dataset}.jsonl nor a folder {dataset}")
