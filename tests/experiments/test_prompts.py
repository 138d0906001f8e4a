"""Our own prompts are 8 tasks of 8, each well-formed and asked once; the edits are 20 of one file, in sequence."""

import ast
import difflib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import experiments
from experiments.workloads import EditPrompts, OwnPrompts

FILE = Path(experiments.__file__).parent / "prompts" / "own.jsonl"
TASKS = ("chat", "summarise", "translate", "code_edit", "extract_json", "math", "qa_text", "repeat")
EDITS = FILE.with_name("edits.jsonl")
KINDS = {"rename", "add_argument", "docstring", "reorder", "fix"}


@pytest.fixture(scope="module")
def items() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_there_are_eight_tasks_of_eight_and_each_task_stands_together(items: list[dict[str, Any]]) -> None:
    assert [item["category"] for item in items] == [task for task in TASKS for _ in range(8)]


def test_ids_count_from_one(items: list[dict[str, Any]]) -> None:
    assert [item["question_id"] for item in items] == list(range(1, 65))


def test_items_have_the_three_fields_and_one_or_two_non_empty_turns(items: list[dict[str, Any]]) -> None:
    for item in items:
        assert set(item) == {"question_id", "category", "turns"}
        assert len(item["turns"]) in (1, 2), item["question_id"]
        assert all(isinstance(turn, str) and turn == turn.strip() != "" for turn in item["turns"]), item["question_id"]


def test_no_turn_is_asked_twice_and_some_conversations_have_two(items: list[dict[str, Any]]) -> None:
    turns = [" ".join(turn.casefold().split()) for item in items for turn in item["turns"]]
    assert [turn for turn, count in Counter(turns).items() if count > 1] == []
    assert 64 < len(turns) < 80


def test_prompts_carry_the_text_that_their_task_works_on(items: list[dict[str, Any]]) -> None:
    first = {task: [item["turns"][0] for item in items if item["category"] == task] for task in TASKS}
    texts = [turn.split("\n\n", 1)[1].split() for turn in first["summarise"]]
    assert all(120 <= len(text) <= 220 for text in texts)
    code = [turn.split("```") for turn in first["code_edit"]]
    assert all(len(parts) == 3 and 10 <= len(parts[1].strip().splitlines()) <= 35 for parts in code)
    assert all(turn.endswith("Return the whole code.") for turn in first["code_edit"])
    assert all("JSON" in turn for turn in first["extract_json"])
    assert all("\n\nPassage: " in turn and "\n\nQuestion: " in turn for turn in first["qa_text"])


def test_the_workload_gives_them_all_in_order(items: list[dict[str, Any]]) -> None:
    loaded = [(c.question_id, c.task, list(c.turns)) for c in OwnPrompts().load()]
    assert loaded == [(str(item["question_id"]), item["category"], item["turns"]) for item in items]


# ------------------------------------------------------------------------------------------------------- edits


@pytest.fixture(scope="module")
def edits() -> list[dict[str, Any]]:
    return [json.loads(line) for line in EDITS.read_text(encoding="ascii").splitlines()]


def _file_in(item: dict[str, Any]) -> str:
    """The file that an edit is about."""
    head, file, instruction = re.split(r"```(?:python\n)?", item["turns"][0])
    assert head == "This is the file shop.py.\n\n"
    assert instruction.endswith(" Return the whole file.")
    return file


def test_the_edits_are_twenty_single_turns_of_five_kinds(edits: list[dict[str, Any]]) -> None:
    assert [item["question_id"] for item in edits] == list(range(1, 21))
    assert all(set(item) == {"question_id", "category", "turns"} and len(item["turns"]) == 1 for item in edits)
    assert Counter(item["category"] for item in edits) == dict.fromkeys(KINDS, 4)


def test_an_edit_fits_a_small_context(edits: list[dict[str, Any]]) -> None:
    # Counted with the demo model's tokenizer: 322 to 466 tokens, more than three characters each.
    assert all(1000 < len(item["turns"][0]) < 1800 for item in edits)


def test_each_edit_starts_from_the_file_that_the_one_before_leaves(edits: list[dict[str, Any]]) -> None:
    found = [_file_in(item) for item in edits]
    for text in found:
        ast.parse(text)
        assert 40 <= len(text.splitlines()) <= 52
    for item, before, after in zip(edits, found, found[1:], strict=False):
        alike = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).ratio()
        assert 0.8 < alike < 1, item["question_id"]
        moved = sorted(before.split()) == sorted(after.split())
        assert moved == (item["category"] == "reorder"), item["question_id"]


def test_the_edits_are_a_workload(edits: list[dict[str, Any]]) -> None:
    loaded = [(c.question_id, c.task, list(c.turns)) for c in EditPrompts().load()]
    assert loaded == [(str(item["question_id"]), item["category"], item["turns"]) for item in edits]
