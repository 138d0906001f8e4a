"""Our own prompts are 8 tasks of 8, each well-formed and asked once."""

from collections import Counter

from experiments.workloads import OwnPrompts


def test_there_are_eight_tasks_of_eight() -> None:
    assert Counter(c.task for c in OwnPrompts().load()) == dict.fromkeys(
        ("chat", "summarise", "translate", "code_edit", "extract_json", "math", "qa_text", "repeat"), 8
    )


def test_no_turn_is_asked_twice_and_some_conversations_have_two() -> None:
    turns = [turn for c in OwnPrompts().load() for turn in c.turns]
    assert len(set(turns)) == len(turns)
    assert 64 < len(turns) < 80
