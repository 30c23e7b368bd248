"""Rows of ToolHop as they are written: the packaged sample, a file in the original format, or the hub."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from data.hub import HubFile, file_rows
from data.splits import file_hash
from metrics.errors import ConfigurationError

logger = logging.getLogger(__name__)

# The commit that holds the published file, and that file's SHA-256.
HUB = HubFile("bytedance-research/ToolHop", "b439d7279af359fda46e8117ae4f0245b75f5c6b", "data/ToolHop.json")
PUBLISHED_SHA256 = "0a51f71a44b7025645e452123af3caf2e348301922af91778e268db0188a7fab"
REVISION_VARIABLE = "TOOLHOP_REVISION"
SAMPLE_FILE = "toolhop_sample.json"
FIELDS = (
    "id", "question", "answer", "sub_task", "tools", "functions", "domain", "answer_type", "previous_answer_type",
)  # fmt: skip
_HUB_TIMEOUT_S = 20
_COMMIT = re.compile(r"[0-9a-f]{40}")


def read_raw_rows(name: str, data_file: str | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows as they are written, and where they come from: the packaged sample, a file in the original format,
    or the hub at the pinned revision (`TOOLHOP_REVISION` names another one)."""
    if name == "toolhop-sample":
        if data_file:
            raise ConfigurationError("toolhop-sample is packaged: use --dataset toolhop with --data-file")
        path = str(resources.files("data.samples").joinpath(SAMPLE_FILE))
        return file_rows(path, FIELDS), {"data_file": SAMPLE_FILE, "data_sha256": file_hash(path)}
    origin: dict[str, Any]
    if data_file:
        path, origin = data_file, {"data_file": data_file}
    else:
        hub = HubFile(HUB.repo, os.environ.get(REVISION_VARIABLE, "").strip() or HUB.revision, HUB.path)
        path, commit = _hub_file(hub)
        origin = {"hub": hub.repo, "revision": commit, "data_file": hub.path}
    rows = file_rows(path, FIELDS, allow_empty=True)
    origin["data_sha256"] = file_hash(path)
    origin["published_file"] = origin["data_sha256"] == PUBLISHED_SHA256
    return rows, origin


def _hub_file(hub: HubFile) -> tuple[str, str]:
    """(path in the hub's local cache, commit): downloaded where needed, from the cache alone when it is there.

    The file's `tools` are an object with other keys in every row, which no Arrow schema of `datasets` can hold,
    so it is fetched as it is by `huggingface_hub`, the client under `datasets`.
    """
    try:
        from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

        cached = try_to_load_from_cache(hub.repo, hub.path, repo_type="dataset", revision=hub.revision)
        if isinstance(cached, str) and _COMMIT.fullmatch(hub.revision):
            return cached, hub.revision
        # one plain request first: a download tries for half a minute before it says that there is no network
        info = HfApi().repo_info(hub.repo, repo_type="dataset", revision=hub.revision, timeout=_HUB_TIMEOUT_S)
        commit = info.sha or hub.revision
        return str(hf_hub_download(hub.repo, hub.path, repo_type="dataset", revision=commit)), commit
    except Exception as error:  # offline, gated, moved: the remedy is the same
        logger.debug("cannot load %s", hub.uri, exc_info=True)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise ConfigurationError(
            f"cannot read toolhop from the Hugging Face hub ({reason}): download {hub.url} on a machine with access "
            f"and give it with --data-file ToolHop.json, or use --dataset toolhop-sample"
        ) from None


def check_row(row: dict[str, Any], number: int, path: str) -> dict[str, Any]:
    """The row with an id (its position where it has none) and a question; ConfigurationError says what is wrong."""
    where = f"{Path(path).name}, row {number}"
    row_id = row.get("id", number)
    if isinstance(row_id, str) and len(row_id) < 19 and row_id.strip().isdecimal():
        row_id = int(row_id)
    if isinstance(row_id, bool) or not isinstance(row_id, int | str):
        raise ConfigurationError(f"{where}: the id must be a number or a text, got {row_id!r}")
    if not isinstance(row.get("question"), str) or not row["question"].strip():
        raise ConfigurationError(f"{where}: the row has no question")
    if not isinstance(row.get("tools"), Mapping | list) or not isinstance(row.get("functions"), list):
        raise ConfigurationError(f"{where}: `tools` and `functions` are missing or of another form")
    return {**row, "id": row_id}
