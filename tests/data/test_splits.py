"""Which rows a run uses, and that it cannot be fooled about them."""

import json
import os
from pathlib import Path

import pytest

from data.splits import (
    choose_rows,
    draw_splits,
    draw_train_validation,
    file_hash,
    ids_hash,
    shipped_ids,
    splits_hash,
)
from metrics.errors import ConfigurationError

ROWS = [{"id": i} for i in range(30)]


def choose(rows=ROWS, **options):
    return choose_rows(rows, lambda row: row["id"], dataset="d", **options)


def test_toolhop_splits_are_the_published_ids():
    splits = shipped_ids("toolhop")
    assert splits["test"] == list(range(100))
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [150, 50, 100]
    assert not set(splits["train"]) & set(splits["validation"])
    assert set(splits["train"]) | set(splits["validation"]) <= set(range(100, 995))
    drawn = draw_train_validation(range(100, 995))
    assert drawn == {name: splits[name] for name in ("train", "validation")}


def test_hotpotqa_splits_are_disjoint_string_ids():
    splits = shipped_ids("hotpotqa")
    assert [len(set(splits[name])) for name in ("train", "validation", "test")] == [150, 50, 100]
    assert len(set(splits["train"]) | set(splits["validation"]) | set(splits["test"])) == 300
    assert all(isinstance(row_id, str) for name in splits for row_id in splits[name])
    assert splits["test"][0] == "5a8b57f25542995d1e6f1371"


@pytest.mark.real_data
@pytest.mark.skipif("HOPTEAM_REAL_DATA" not in os.environ, reason="HOPTEAM_REAL_DATA is not set")
def test_hotpotqa_lists_match_the_real_rows():
    folder = Path(os.environ["HOPTEAM_REAL_DATA"]) / "hotpotqa"
    first = [json.loads(line)["id"] for line in (folder / "validation_first100.jsonl").open()]
    more = [json.loads(line) for line in (folder / "validation_more_300.jsonl").open()]
    splits = shipped_ids("hotpotqa")
    assert splits["test"] == first
    drawn = draw_train_validation([row["id"] for row in more])
    assert drawn == {name: splits[name] for name in ("train", "validation")}
    assert all(row["dev_index"] >= 100 for row in more)


def test_the_order_is_only_then_offset_then_limit():
    chosen = choose(split="all", only=["20", 3, "7", 11], offset=1, limit=2)
    assert chosen.ids == [7, 11]
    assert choose(split="all", offset=28).ids == [28, 29]
    assert choose(split="all", limit=0).ids == list(range(30))
    assert choose(split="all", offset=99).ids == []


def test_a_split_keeps_the_order_of_its_list():
    chosen = choose(splits={"test": [5, 2, 9]}, split="test", limit=2)
    assert chosen.ids == [5, 2] and chosen.rows == [{"id": 5}, {"id": 2}]
    assert chosen.config["n_split"] == 3 and chosen.config["n"] == 2
    assert chosen.config["split_conformant"] and chosen.config["ids_hash"] == ids_hash([5, 2])


def test_missing_split_ids_are_an_error_that_names_how_many():
    with pytest.raises(ConfigurationError, match=r"f\.json lacks 2 of the 3 ids of the test split"):
        choose(splits={"test": [1, 100, 200]}, split="test", source="f.json")


def test_a_set_without_published_splits_is_its_own_test_split():
    assert choose(split="test").ids == list(range(30))
    with pytest.raises(ConfigurationError, match="no published train split"):
        choose(split="train")


def test_new_splits_keep_the_proportions_and_are_marked():
    parts = {name: choose(split=name, split_from_file=True) for name in ("train", "validation", "test")}
    assert {name: len(part.ids) for name, part in parts.items()} == {"train": 15, "validation": 5, "test": 10}
    assert sorted(i for part in parts.values() for i in part.ids) == list(range(30))
    assert not any(part.config["split_conformant"] for part in parts.values())
    assert draw_splits(range(30)) == {name: part.ids for name, part in parts.items()}


@pytest.mark.parametrize(("n", "sizes"), [(0, (0, 0, 0)), (1, (0, 0, 1)), (2, (0, 1, 1)), (180, (90, 30, 60))])
def test_small_files_still_split(n, sizes):
    splits = draw_splits(list(range(n)))
    assert tuple(len(splits[name]) for name in ("train", "validation", "test")) == sizes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "dev"}, "unknown split 'dev'"),
        ({"split": "all", "only": [99, 3]}, "1 ids are not in the data"),
        ({"splits": {"test": [1]}, "only": [3]}, "use --split all"),
        ({"split": "all", "limit": -1}, "must not be negative"),
        ({"split": "all", "offset": -1}, "must not be negative"),
    ],
)
def test_mistakes_are_one_line(options, words):
    with pytest.raises(ConfigurationError, match=words):
        choose(**options)


def test_duplicate_ids_are_refused():
    with pytest.raises(ConfigurationError, match="1 ids more than once"):
        choose([{"id": 1}, {"id": 1}], split="all")


def test_hashes_depend_on_order_and_content(tmp_path):
    assert ids_hash([1, 2]) != ids_hash([2, 1]) and ids_hash([1, 2]) == ids_hash(["1", "2"])
    assert splits_hash({"train": [1], "test": [2]}) == splits_hash({"test": [2], "train": [1]})
    assert splits_hash({"train": [1], "test": [2]}) != splits_hash({"train": [2], "test": [1]})
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert file_hash(str(path)).startswith("ba7816bf")
