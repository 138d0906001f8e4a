"""A run without a key is kept offline, whole, and readable."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specinfer.errors import ConfigError
from specinfer.protocols import Tracker
from specinfer.trackers.wandb import WandbMode, WandbTracker, has_key

FULL, FIRST, LAST = 1, 2, 4
BLOCK_BYTES, HEADER_BYTES = 32768, 7


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def _records(data: bytes) -> Iterator[Any]:
    """The records of a .wandb file, which is a LevelDB log."""
    from wandb.proto.wandb_internal_pb2 import Record

    position, parts = HEADER_BYTES, b""
    while position + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < HEADER_BYTES:
            position += left
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + HEADER_BYTES])
        parts = (b"" if kind in {FULL, FIRST} else parts) + data[position + HEADER_BYTES :][:length]
        position += HEADER_BYTES + length
        if kind in {FULL, LAST}:
            yield Record.FromString(parts)


def test_a_key_is_found_in_the_environment_and_in_netrc(
    no_key: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not has_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert has_key()


def test_an_empty_project_is_refused() -> None:
    with pytest.raises(ConfigError, match="project"):
        WandbTracker(project="")


@pytest.mark.slow
def test_an_offline_run_holds_config_history_summary_table_and_plot(no_key: None, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = tmp_path / "split.png"
    Figure(figsize=(1, 1)).savefig(figure)
    tracker = WandbTracker(tags=["t1"])
    assert tracker.mode is WandbMode.AUTO and isinstance(tracker, Tracker)
    tracker.start(tmp_path, {"num_draft_tokens": 4}, name="n", group="sweep", job_type="compare")
    tracker.log({"ngram/tokens_per_s": 12.5}, 3)
    tracker.table("figures", ["task", "speedup"], [["chat", 1.5]])
    tracker.artifact(figure, "figure")
    tracker.summary({"speedup": 1.5})
    tracker.finish()

    (path,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    records = list(_records(path.read_bytes()))
    run = next(r.run for r in records if r.HasField("run"))
    assert (run.project, run.run_group, run.job_type, list(run.tags)) == ("specinfer", "sweep", "compare", ["t1"])
    assert {u.key: u.value_json for u in run.config.update}["num_draft_tokens"] == "4"
    history = [
        {item.key or item.nested_key[0]: item.value_json for item in r.history.item}
        for r in records
        if r.HasField("history")
    ]
    assert any(h.get("ngram/tokens_per_s") == "12.5" and h.get("request_step") == "3" for h in history)
    keys = {key for h in history for key in h}
    assert {"figures", "plots/split"} <= keys
    summaries = [u for r in records if r.HasField("summary") for u in r.summary.update]
    assert any((u.key or "/".join(u.nested_key)) == "speedup" and u.value_json == "1.5" for u in summaries)
    assert any(r.HasField("metric") and r.metric.step_metric == "request_step" for r in records)
    assert list(path.parent.glob("files/media/table/*.json"))
