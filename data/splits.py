"""Which rows a run uses: shipped id lists, new splits of a file, and the order only -> offset -> limit.

The published splits of a dataset are id lists in `data/ids/`: `<dataset>_eval_ids.json` (a JSON list: the test
split in row order) and `<dataset>_split_ids.json` (an object with `train`, `validation` and, where there is no
eval list, `test`); dashes of a dataset's name are underscores in file names.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Generic, TypeVar

from data.hub import data_files
from metrics.errors import ConfigurationError

Row = TypeVar("Row")
RowId = Any  # str or int, as the dataset spells it

SPLITS = ("train", "validation", "test", "all")
SPLIT_SIZES = {"train": 150, "validation": 50, "test": 100}
SPLIT_SEED = 0


@dataclass
class Choice(Generic[Row]):
    """The chosen rows in order, and what a result must state about them (to be merged into `Task.config`)."""

    rows: list[Row]
    ids: list[RowId]
    config: dict[str, Any] = field(default_factory=dict)


def choose_rows(
    rows: Sequence[Row],
    id_of: Callable[[Row], RowId],
    *,
    dataset: str,
    splits: Mapping[str, Sequence[RowId]] | None = None,
    split: str = "test",
    split_from_file: bool = False,
    only: Sequence[RowId] | None = None,
    offset: int = 0,
    limit: int | None = None,
    source: str = "the data",
) -> Choice[Row]:
    """The rows of one split, then the ids in `only` (none = all), then without `offset`, then at most `limit`.

    `splits` are the published id lists (see `shipped_ids`); None means that the dataset has none: `test` is
    then every row. `split="all"` is every row in order. `limit` None or 0 keeps all. `split_from_file` draws
    new splits in the published proportions instead, and the choice is marked non-conformant.
    `source` names the file in messages. Raises ConfigurationError for an unknown split, for split ids or
    `only` ids that are not there (naming how many), for duplicate ids and for negative numbers.
    """
    if split not in SPLITS:
        raise ConfigurationError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    if offset < 0 or (limit or 0) < 0:
        raise ConfigurationError("--offset and --limit must not be negative")
    by_id = _index(rows, id_of, source)
    if split_from_file:
        splits = draw_splits(list(by_id))
    chosen = _split_ids(by_id, dataset, splits, split, source)
    n_split = len(chosen)
    if only:
        chosen = _only(chosen, only, by_id, split)
    chosen = chosen[offset:]
    if limit:
        chosen = chosen[:limit]
    return Choice(
        rows=[by_id[row_id] for row_id in chosen],
        ids=chosen,
        config={
            "split": split,
            "split_origin": "drawn from the file" if split_from_file else "published" if splits else "whole file",
            "split_conformant": bool(splits) and not split_from_file and split != "all",
            "n_split": n_split,
            "n": len(chosen),
            "ids_hash": ids_hash(chosen),
        },
    )


def _index(rows: Sequence[Row], id_of: Callable[[Row], RowId], source: str) -> dict[RowId, Row]:
    by_id: dict[RowId, Row] = {}
    ids = [id_of(row) for row in rows]
    twice = [row_id for row_id, count in Counter(ids).items() if count > 1]
    if twice:
        raise ConfigurationError(f"{source} holds {len(twice)} ids more than once, e.g. {_few(twice)}")
    by_id.update(zip(ids, rows, strict=True))
    return by_id


def _split_ids(
    by_id: Mapping[RowId, Any], dataset: str, splits: Mapping[str, Sequence[RowId]] | None, split: str, source: str
) -> list[RowId]:
    if split == "all" or (splits is None and split == "test"):
        return list(by_id)
    if splits is None or split not in splits:
        raise ConfigurationError(
            f"{dataset} has no published {split} split: give --data-file and --split-from-file to draw one"
        )
    wanted = list(splits[split])
    missing = [row_id for row_id in wanted if row_id not in by_id]
    if missing:
        raise ConfigurationError(
            f"{source} lacks {len(missing)} of the {len(wanted)} ids of the {split} split of {dataset} "
            f"(e.g. {_few(missing)}): use --split all, name rows with --only, or draw new splits with --split-from-file"
        )
    return wanted


def _only(chosen: list[RowId], only: Sequence[RowId], by_id: Mapping[RowId, Any], split: str) -> list[RowId]:
    wanted = {str(row_id) for row_id in only}
    unknown = sorted(wanted - {str(row_id) for row_id in chosen})
    if unknown:
        known = {str(row_id) for row_id in by_id}
        elsewhere = " (there are rows with these ids outside it: use --split all)" if known.issuperset(unknown) else ""
        place = "the data" if split == "all" else f"the {split} split"
        raise ConfigurationError(f"--only: {len(unknown)} ids are not in {place}, e.g. {_few(unknown)}{elsewhere}")
    return [row_id for row_id in chosen if str(row_id) in wanted]


def _few(ids: Sequence[RowId]) -> str:
    return ", ".join(str(row_id) for row_id in list(ids)[:3])


def shipped_ids(dataset: str) -> dict[str, list[RowId]] | None:
    """The published splits of a dataset, `{"train": ids, "validation": ids, "test": ids}`; None if it has none."""
    stem = dataset.replace("-", "_")
    eval_ids = _read_ids(f"{stem}_eval_ids.json")
    others = _read_ids(f"{stem}_split_ids.json")
    splits: dict[str, list[RowId]] = {}
    if isinstance(others, dict):
        splits.update({name: list(others[name]) for name in ("train", "validation", "test") if name in others})
    if isinstance(eval_ids, list):
        splits["test"] = list(eval_ids)
    return splits or None


def _read_ids(name: str) -> Any:
    file = resources.files("data").joinpath("ids", name)
    return json.loads(file.read_text("utf-8")) if file.is_file() else None


def draw_splits(
    ids: Sequence[RowId], sizes: Mapping[str, int] = SPLIT_SIZES, seed: int = SPLIT_SEED
) -> dict[str, list[RowId]]:
    """Disjoint train, validation and test ids that use up `ids`, in the proportions of `sizes`.

    Equal ids in equal order give equal splits. Each list keeps the order of the file. Test and validation
    are rounded up to at least one row where there are enough rows, train takes the rest.
    """
    total = sum(sizes.values())
    n = len(ids)
    n_test = min(n, max(round(n * sizes["test"] / total), 1))
    n_validation = min(n - n_test, max(round(n * sizes["validation"] / total), 1))
    order = list(range(n))
    random.Random(seed).shuffle(order)
    parts = {
        "test": order[:n_test],
        "validation": order[n_test : n_test + n_validation],
        "train": order[n_test + n_validation :],
    }
    return {name: [ids[i] for i in sorted(parts[name])] for name in ("train", "validation", "test")}


def draw_train_validation(
    pool: Sequence[RowId], n_train: int = 150, n_validation: int = 50, seed: int = SPLIT_SEED
) -> dict[str, list[RowId]]:
    """How the published train and validation lists were drawn: one sample of `pool`, cut in two, each in pool order."""
    drawn = random.Random(seed).sample(range(len(pool)), n_train + n_validation)
    return {
        "train": [pool[i] for i in sorted(drawn[:n_train])],
        "validation": [pool[i] for i in sorted(drawn[n_train:])],
    }


def ids_hash(ids: Sequence[RowId]) -> str:
    """A short hash of an ordered id list (first 16 hex digits of SHA-256 over its JSON)."""
    text = json.dumps([str(row_id) for row_id in ids], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def file_hash(path: str) -> str:
    """SHA-256 of a data file (of a folder: of its files, one after the other), as a run's configuration states it."""
    digest = hashlib.sha256()
    for name in data_files(path):
        with open(name, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def splits_hash(splits: Mapping[str, Sequence[RowId]]) -> str:
    """One hash for the train, validation and test lists that an optimization used."""
    return ids_hash([f"{name}:{row_id}" for name in sorted(splits) for row_id in splits[name]])
