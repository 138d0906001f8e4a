"""The audit command says of a file what a request under the strict policy would meet, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.audit import main

CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
OPEN_ENDED = {"type": "string", "pattern": "^a"}
UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


def written(folder: Path, name: str, *values: Any) -> str:
    path = folder / name
    path.write_text("\n".join(json.dumps(value) for value in values))
    return str(path)


def test_a_schema_that_a_backend_enforces_exactly_is_auto_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([written(tmp_path, "a.json", OPEN_ENDED)]) == 0
    printed = capsys.readouterr().out
    assert "auto takes llguidance" in printed
    row = next(line for line in printed.splitlines() if "pattern with an open end" in line)
    assert [cell.strip() for cell in row.split("│")][2:-1] == ["#", "exact", "narrowed", "narrowed"]


def test_a_schema_that_none_enforces_is_refused_by_the_name_of_its_keyword(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, "a.json", UNIQUE)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "refused under policy=strict" in printed
    assert "uniqueItems at #" in printed


def test_of_many_schemas_each_counts_once_for_each_backend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"id": str(n), "schema": schema} for n, schema in enumerate([CLOSED, OPEN_ENDED, UNIQUE])]
    wrong = {"id": "wrong", "schema": {"type": "strng"}}
    assert main([written(tmp_path, "a.jsonl", *lines, wrong), "backends=xgrammar,outlines"]) == 1
    printed = capsys.readouterr().out
    counts = {
        cells[1]: cells[2:-2]
        for cells in ([cell.strip() for cell in line.split("│")] for line in printed.splitlines())
        if len(cells) == 8
    }
    assert counts == {
        "xgrammar": ["1", "1", "1", "0"],
        "outlines": ["1", "1", "1", "0"],
        "auto": ["1", "1", "1", "0"],
    }
    assert "no request may have it" in printed and "strng" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one file"),
        (["absent.json"], "cannot be read"),
        (["a.json", "backend=xgrammar"], "there is no 'backend' here"),
        (["a.json", "backends=xgramar"], "xgramar"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "a.json", CLOSED)
    given = [path if argument == "a.json" else argument for argument in arguments]
    assert main(given) == 2
    complaint = capsys.readouterr().err
    assert said in complaint and complaint.count("\n") == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"type": "strng"}', '{"$ref": "#/nowhere"}', "false"])
def test_what_is_no_schema_is_a_mistake(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(content)
    assert main([str(tmp_path / "a.json")]) == 2
    assert "a.json: " in capsys.readouterr().err
