"""The dataset flags: defaults, order, and what is refused with a line."""

import argparse
import subprocess
import sys

import pytest

from data.options import add_dataset_flags, dataset_notices, only_ids, row_limit, splits_from_args, task_from_args
from metrics.errors import ConfigurationError


def parse(*words, **options):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_dataset_flags(parser, **options)
    return parser.parse_args(words)


def test_the_default_is_the_packaged_sample_in_full():
    args = parse()
    task = task_from_args(args)
    assert task.name == "toolhop-sample" and len(task.examples) == 10 and task.config["split"] == "test"
    assert not any("--limit" in line for line in dataset_notices(args, task))


def test_other_datasets_run_five_rows_and_say_so():
    args = parse("--dataset", "hotpotqa")
    assert row_limit(args) == 5
    assert row_limit(parse("--dataset", "hotpotqa", "--limit", "0")) == 0
    assert row_limit(parse("--dataset", "hotpotqa", "--limit", "7")) == 7
    assert row_limit(parse("--dataset", "hotpotqa", "--only", "a")) == 0

    class Task:
        name, examples, config = "hotpotqa", [None] * 5, {"split": "test", "n_split": 100}

    assert dataset_notices(args, Task) == ["running the first 5 rows of 100 (test of hotpotqa); --limit 0: all"]


def test_only_then_offset_then_limit():
    args = parse("--only", "9,3", "5", "--offset", "1", "--limit", "1")
    assert only_ids(args) == ["9", "3", "5"]
    task = task_from_args(args)
    assert [example.id for example in task.examples] == [5] and task.config["split"] == "all"
    with pytest.raises(ConfigurationError, match="not in the test split"):
        task_from_args(parse("--split", "test", "--only", "0"))


def test_optimizations_get_three_splits_and_no_row_flags():
    args = parse(evaluation=False)
    assert not hasattr(args, "limit")
    assert {name: len(task.examples) for name, task in splits_from_args(args).items()} == {
        "train": 20, "validation": 10, "test": 10,
    }  # fmt: skip


@pytest.mark.parametrize("words", [["--limit", "-1"], ["--limit", "x"], ["--split", "dev"], ["--offset", "1.5"]])
def test_bad_values_are_refused_by_the_parser(words):
    with pytest.raises(argparse.ArgumentError):
        parse(*words)


def test_a_set_without_published_splits_cannot_be_optimized_without_a_file():
    with pytest.raises(ConfigurationError, match="no published splits"):
        splits_from_args(parse("--dataset", "musique", evaluation=False))


def test_the_flags_cost_no_heavy_import():
    code = (
        "import sys, argparse; from data.options import add_dataset_flags; "
        "add_dataset_flags(argparse.ArgumentParser()); "
        "print([m for m in ('dspy', 'datasets', 'numpy', 'litellm', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
