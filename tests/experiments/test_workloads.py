"""The same file gives the same conversations, and what is malformed is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.workloads import Conversation, EditPrompts, HubDataset, JsonlFile, OwnPrompts, parse_lines
from specinfer.errors import ConfigError


def _line(question_id: Any = 1, category: str = "chat", turns: Any = ("Hi",), **more: Any) -> str:
    return json.dumps({"question_id": question_id, "category": category, "turns": turns, **more})


def test_lines_become_conversations_in_order() -> None:
    lines = [_line(7, "qa", ["a", "b"], reference="r"), "", _line("x", extra=1)]
    assert parse_lines(lines, "f") == [Conversation("7", "qa", ("a", "b"), "r"), Conversation("x", "chat", ("Hi",))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "f line 2 is no JSON"),
        ("[1]", "f line 2 has no a JSON object"),
        ('{"question_id": 1}', "f line 2 has no category, turns"),
        (_line(2, turns=[]), "f line 2: turns must be a list of non-empty strings"),
        (_line(2, turns="Hi"), "f line 2: turns must be a list"),
        (_line(2, turns=[" "]), "f line 2: turns must be a list"),
        (_line(1), "f line 2 repeats question_id 1 of line 1"),
    ],
)
def test_a_malformed_line_is_named(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_lines([_line(1), line], "f")
    assert str(caught.value).startswith(message)


@pytest.fixture
def path(tmp_path: Path) -> str:
    lines = [_line(i, category) for i, category in enumerate(["a", "b", "a", "b", "a", "c"])]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    return str(tmp_path / "q.jsonl")


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        ({}, "012345"),
        ({"categories": ["a"]}, "024"),
        ({"limit": 2}, "01"),
        ({"limit_per_category": 1}, "015"),
        ({"categories": ["b", "a"], "limit_per_category": 2, "limit": 3}, "012"),
    ],
)
def test_a_selection_keeps_the_first_ones_in_order(selection: dict[str, Any], ids: str, path: str) -> None:
    assert "".join(c.question_id for c in JsonlFile(path=path, **selection).load()) == ids


@pytest.mark.parametrize("name", ["limit", "limit_per_category"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"workload.{name} must be at least 1, got 0"):
        JsonlFile(path="x", **{name: 0})  # type: ignore[arg-type]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="holds no conversation"):
        JsonlFile(path=str(tmp_path / "q.jsonl")).load()


@pytest.mark.parametrize(("workload", "category"), [(OwnPrompts, "code_edit"), (EditPrompts, "rename")])
def test_the_files_that_come_along_can_be_selected_from(workload: Any, category: str) -> None:
    assert [c.task for c in workload(categories=[category], limit=3).load()] == [category] * 3
    with pytest.raises(ConfigError, match=r"workload\.categories: no poetry in the (own|edit) prompts; it has"):
        workload(categories=["poetry"]).load()


# --------------------------------------------------------------------------------------------------------- hub


class FakeDatasets:
    """Stands in for the package."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.call: tuple[Any, ...] = ()

    def load_dataset(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        self.call = (*args, kwargs)
        return self.rows


def test_a_hub_dataset_needs_a_revision() -> None:
    with pytest.raises(ConfigError, match=r"workload\.revision is not given: pin owner/name"):
        HubDataset(dataset="owner/name").load()


def test_a_missing_package_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"needs the datasets package: pip install 'specinfer\[hub\]'"):
        HubDataset(dataset="owner/name", revision="abc").load()


def test_a_hub_dataset_is_read_at_its_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDatasets([{"prompt": "Hi", "kind": "a"}, {"prompt": ["x", "y"], "kind": "b"}])
    monkeypatch.setitem(sys.modules, "datasets", fake)
    workload = HubDataset(dataset="o/n", revision="abc", turns_column="prompt", category_column="kind")
    assert workload.load() == [Conversation("0", "a", ("Hi",)), Conversation("1", "b", ("x", "y"))]
    assert fake.call == ("o/n", None, {"split": "test", "revision": "abc"})


def test_a_column_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", FakeDatasets([{"prompt": "Hi"}]))
    with pytest.raises(ConfigError, match=r"o/n has no column \['turns'\]; it has \['prompt'\]"):
        HubDataset(dataset="o/n", revision="abc").load()
