"""What are the models asked?

Conversations from our own prompts and edits, from a JSON Lines file in Spec-Bench's format, or from a dataset on the
hub. Always true: the same configuration gives the same conversations in the same order, and an item that does not fit
the format is an error with its place, never skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from specinfer.errors import ConfigError, RequestError
from specinfer.forms import StructuredOutputs


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a user says, turn by turn; the answers come from the model."""

    question_id: str
    task: str
    turns: tuple[str, ...]
    reference: Any = None
    form: StructuredOutputs | None = None
    """What form each answer must have"""


class Workload(Protocol):
    """A component that gives conversations."""

    def load(self) -> list[Conversation]:
        """The selected conversations, in order; ConfigError when there are none or one is malformed."""
        ...


@dataclass(kw_only=True)
class Selection:
    """Which conversations of a workload are used, in their order.

    categories: None for all. limit_per_category: the first so many of each category. limit: the first so many of all,
    after the other two.
    """

    categories: list[str] | None = None
    limit_per_category: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("limit", "limit_per_category"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"workload.{name} must be at least 1, got {value}; give null for no limit")

    def select(self, conversations: Sequence[Conversation], source: str) -> list[Conversation]:
        """The conversations that the selection keeps; ConfigError for a category that is not there."""
        present = list(dict.fromkeys(c.task for c in conversations))
        missing = [name for name in self.categories or () if name not in present]
        if missing:
            raise ConfigError(f"workload.categories: no {', '.join(missing)} in {source}; it has {', '.join(present)}")
        seen: Counter[str] = Counter()
        kept = []
        for conversation in conversations:
            if self.categories is not None and conversation.task not in self.categories:
                continue
            seen[conversation.task] += 1
            if self.limit_per_category is None or seen[conversation.task] <= self.limit_per_category:
                kept.append(conversation)
        if not kept:
            raise ConfigError(f"workload: {source} holds no conversation")
        return kept[: self.limit]


@dataclass(kw_only=True)
class OwnPrompts(Selection):
    """The project's own prompts: 8 tasks of 8."""

    def load(self) -> list[Conversation]:
        return self.select(_prompts_of("own.jsonl", "the own prompts"), "the own prompts")


@dataclass(kw_only=True)
class EditPrompts(Selection):
    """20 edits of one file in sequence, as an agent asks for them: each prompt holds the file as it stands then."""

    def load(self) -> list[Conversation]:
        return self.select(_prompts_of("edits.jsonl", "the edit prompts"), "the edit prompts")


@dataclass(kw_only=True)
class FormPrompts(Selection):
    """The project's own prompts for structured outputs: small records, lists, choices, tool calls."""

    def load(self) -> list[Conversation]:
        return self.select(_prompts_of("forms.jsonl", "the form prompts"), "the form prompts")


@dataclass(kw_only=True)
class JsonSchemaFile(Selection):
    """A file in JSONSchemaBench's format: `id`, `split`, `schema` and `instances`, one object a line.

    Each schema is a request of its own: JSON that follows it. backend, policy, max_whitespace: as in StructuredOutputs.
    The instances become the reference.
    """

    path: str = ""
    backend: str = "auto"
    policy: str = "strict"
    max_whitespace: int = 1

    def load(self) -> list[Conversation]:
        lines = _read_lines(self.path, "JSONSchemaBench's format")
        found = [self._conversation(item, f"{self.path} line {n}") for n, item in enumerate(lines, start=1)]
        return self.select(found, self.path)

    def _conversation(self, line: str, place: str) -> Conversation:
        item = json.loads(line)
        absent = {"id", "split", "schema"} - set(item)
        if absent:
            raise ConfigError(f"{place} has no {', '.join(sorted(absent))}")
        form = {
            "json": item["schema"],
            "backend": self.backend,
            "policy": self.policy,
            "max_whitespace": self.max_whitespace,
        }
        schema = json.dumps(item["schema"], ensure_ascii=False)
        turns = (f"Write one JSON value that follows this JSON schema, and nothing else:\n{schema[:MAX_SCHEMA_CHARS]}",)
        return Conversation(
            str(item["id"]), str(item["split"]), turns, item.get("instances"), StructuredOutputs.of(form)
        )


MAX_SCHEMA_CHARS = 2000
"""Of a schema in a prompt; the form holds the whole schema"""


@dataclass(kw_only=True)
class JsonlFile(Selection):
    """A file in Spec-Bench's format: `question_id`, `category`, `turns`, one object a line.

    A line may also have `reference` and `structured_outputs`, the fields of StructuredOutputs.
    """

    path: str = ""

    def load(self) -> list[Conversation]:
        name = Path(self.path).name
        return self.select(parse_lines(_read_lines(self.path, "Spec-Bench's format"), name), name)


@dataclass(kw_only=True)
class HubDataset(Selection):
    """A dataset on the hub, pinned to a commit; needs the `datasets` package.

    dataset: `owner/name`. revision: a commit's hash or a tag. turns_column: a column of strings or of lists of
    strings. Columns that are None: row numbers as ids, the dataset's name as category.
    """

    dataset: str = ""
    revision: str = ""
    subset: str | None = None
    split: str = "test"
    turns_column: str = "turns"
    id_column: str | None = None
    category_column: str | None = None

    def load(self) -> list[Conversation]:
        if not self.dataset:
            raise ConfigError("workload.dataset is not given: give a hub id such as owner/name")
        if not self.revision:
            raise ConfigError(
                f"workload.revision is not given: pin {self.dataset} to a commit, or the figures cannot be repeated"
            )
        try:
            import datasets
        except ImportError as error:
            raise ConfigError(
                f"workload {self.dataset} needs the datasets package: pip install 'specinfer[hub]'"
            ) from error
        rows = datasets.load_dataset(self.dataset, self.subset, split=self.split, revision=self.revision)
        return self.select(list(self._conversations(rows)), self.dataset)

    def _conversations(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Conversation]:
        for index, row in enumerate(rows):
            absent = {self.turns_column, self.id_column, self.category_column} - {None, *row}
            if absent:
                raise ConfigError(f"{self.dataset} has no column {sorted(map(str, absent))}; it has {sorted(row)}")
            turns = row[self.turns_column]
            yield _conversation(
                {
                    "question_id": row[self.id_column] if self.id_column else index,
                    "category": row[self.category_column] if self.category_column else self.dataset,
                    "turns": [turns] if isinstance(turns, str) else list(turns),
                },
                f"{self.dataset} row {index}",
            )


def _read_lines(path: str, wanted: str) -> list[str]:
    if not path:
        raise ConfigError(f"workload.path is not given: give a JSON Lines file in {wanted}")
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"workload.path={path!r} cannot be read: {error}") from error


def _prompts_of(name: str, source: str) -> list[Conversation]:
    """A file that comes with the project."""
    return parse_lines(files("experiments").joinpath("prompts", name).read_text(encoding="utf-8").splitlines(), source)


def parse_lines(lines: Iterable[str], source: str) -> list[Conversation]:
    """Conversations from JSON Lines; ConfigError names the line that is malformed or repeats an id."""
    conversations: list[Conversation] = []
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{source} line {number} is no JSON: {error}") from error
        conversation = _conversation(item, f"{source} line {number}")
        first = first_seen.setdefault(conversation.question_id, number)
        if first != number:
            raise ConfigError(f"{source} line {number} repeats question_id {conversation.question_id} of line {first}")
        conversations.append(conversation)
    return conversations


def _conversation(item: Any, place: str) -> Conversation:
    absent = {"question_id", "category", "turns"} - set(item) if isinstance(item, dict) else {"a JSON object"}
    if absent:
        raise ConfigError(f"{place} has no {', '.join(sorted(absent))}")
    turns = item["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ConfigError(f"{place}: turns must be a list of non-empty strings, got {turns!r:.80}")
    form = item.get("structured_outputs")
    try:
        form = None if form is None else StructuredOutputs.of(form)
    except (RequestError, TypeError, AttributeError) as error:
        raise ConfigError(f"{place}: {error}") from error
    return Conversation(str(item["question_id"]), str(item["category"]), tuple(turns), item.get("reference"), form)
