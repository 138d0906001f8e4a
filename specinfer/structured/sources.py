"""What does a form's source say, before any library sees it?

Always true: every way in which a source is wrong, and every exception of a library, ends as a GrammarError of one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from specinfer.errors import GrammarError
from specinfer.protocols import GrammarKind

MAX_SHOWN = 200
"""Characters of a source or of a library's message that an error repeats"""

NAMES = {
    GrammarKind.JSON_SCHEMA: "JSON schema",
    GrammarKind.REGEX: "regex",
    GrammarKind.EBNF: "EBNF grammar",
    GrammarKind.STRUCTURAL_TAG: "structural tag",
}
_PLACE = re.compile(r"^(\[[\d:]+\] \S+\.(cc|h):\d+: |at \d+\(\d+\): )")
"""Where in a library's own text something was wrong"""


@dataclass(frozen=True, slots=True)
class Tag:
    """One structure of a structural tag, with the longest trigger that its beginning starts with."""

    trigger: str
    begin: str
    schema: Mapping[str, Any]
    end: str


def schema_of(source: str) -> dict[str, Any]:
    """A JSON schema; `true` as the schema {}."""
    return _schema(_json(source, "JSON schema"), "the JSON schema")


def tags_of(source: str) -> list[Tag]:
    """The structures of a structural tag."""
    value = _json(source, "structural tag")
    if not isinstance(value, dict) or set(value) != {"triggers", "structures"}:
        raise GrammarError(f'the structural tag {shown(source)} must be {{"triggers": [...], "structures": [...]}}')
    triggers, structures = value["triggers"], value["structures"]
    if not isinstance(triggers, list) or not triggers or not all(isinstance(t, str) and t for t in triggers):
        raise GrammarError(f"triggers of a structural tag must be non-empty texts, got {shown(triggers)}")
    if not isinstance(structures, list) or not structures:
        raise GrammarError(f"structures of a structural tag must be a non-empty list, got {shown(structures)}")
    tags = [_tag(structure, triggers) for structure in structures]
    unused = [trigger for trigger in triggers if all(tag.trigger != trigger for tag in tags)]
    if unused:
        raise GrammarError(f"no structure begins with the trigger {unused[0]!r}; take it out or add a structure")
    return tags


@contextmanager
def refusals(backend: str, kind: GrammarKind) -> Iterator[None]:
    """Turn what a library raises, its panics included, into a GrammarError."""
    try:
        yield
    except GrammarError:
        raise
    except BaseException as error:
        # A panic of a library in Rust is a BaseException of a class that cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            refuse(backend, kind, str(error) or type(error).__name__, error)
        raise


def refuse(backend: str, kind: GrammarKind, reason: str, cause: BaseException | None = None) -> NoReturn:
    """Raise a GrammarError with a library's reason in one line."""
    line = _PLACE.sub("", next((line.strip() for line in reason.splitlines() if line.strip()), "no reason given"))
    line = line if len(line) <= MAX_SHOWN else line[:MAX_SHOWN] + "..."
    raise GrammarError(f"{backend} refuses the {NAMES[kind]}: {line}; change it or choose another backend") from cause


def shown(value: object) -> str:
    """A value as an error repeats it."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _tag(structure: object, triggers: list[str]) -> Tag:
    if not isinstance(structure, dict) or not {"begin", "schema", "end"} >= set(structure) >= {"begin", "end"}:
        raise GrammarError(f"a structure must have begin, schema and end, got {shown(structure)}")
    begin, end = structure["begin"], structure["end"]
    if not isinstance(begin, str) or not isinstance(end, str):
        raise GrammarError(f"begin and end of a structure must be texts, got {shown(structure)}")
    fitting = [trigger for trigger in triggers if begin.startswith(trigger)]
    if not fitting:
        raise GrammarError(f"the structure's begin {begin!r} starts with none of the triggers {shown(triggers)}")
    schema = _schema(structure.get("schema", {}), f"the schema of the structure {begin!r}")
    return Tag(max(fitting, key=len), begin, schema, end)


def _schema(value: object, name: str) -> dict[str, Any]:
    if value is True:
        return {}
    if value is False:
        raise GrammarError(f"{name} is `false`, which nothing matches; give one that something does")
    if not isinstance(value, dict):
        raise GrammarError(f"{name} must be an object, got {shown(value)}")
    return value


def _json(source: str, name: str) -> Any:
    try:
        source.encode()
        return json.loads(source, parse_constant=_no_constant)
    except RecursionError as error:
        raise GrammarError(f"the {name} is nested too deeply; flatten it") from error
    except ValueError as error:  # half a surrogate pair is one too
        raise GrammarError(f"the {name} is not JSON: {error}; got {shown(source)}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
