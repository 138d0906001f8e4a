"""How does a mistake become one clear line?

Always true: a mistake of the user's (a typo, a wrong type, a bad value, a missing file) is one line that names the
place and the way out; any other error keeps its traceback.
"""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches

from specinfer.errors import SpecinferError


def one_line(error: BaseException) -> str | None:
    """The complaint for `error`, or None when it is no mistake of the user's."""
    from hydra.errors import HydraException, InstantiationException
    from omegaconf.errors import OmegaConfBaseException

    causes = _causes(error)
    if isinstance(error, InstantiationException):
        found = next((cause for cause in causes if isinstance(cause, SpecinferError)), None)
        return None if found is None else f"{_full_key(error)}{_joined(str(found))}"
    if isinstance(error, SpecinferError):
        return _joined(str(error))
    if isinstance(error, HydraException | OmegaConfBaseException):
        inner = next((cause for cause in causes if isinstance(cause, OmegaConfBaseException)), None)
        return _unexplained(error) if inner is None else _of_config(inner, error)
    return None


def _full_key(error: BaseException) -> str:
    """The node of the configuration that was refused, as a prefix."""
    keys = [line.partition("full_key: ")[2] for line in str(error).splitlines() if line.startswith("full_key: ")]
    return f"{keys[0]}: " if keys and keys[0] else ""


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in causes:
        causes.append(current)
        current = current.__cause__
    return causes


def _of_config(error: BaseException, outer: BaseException) -> str:
    """`place: what is wrong`, with the keys that were probably meant."""
    message = str(error).splitlines()[0]
    place = getattr(error, "full_key", None) or str(outer).splitlines()[0]
    owner = getattr(error, "object_type", None)
    key = str(getattr(error, "key", ""))
    if not message.startswith("Key ") or not dataclasses.is_dataclass(owner):
        return f"{place}: {message}"
    keys = [field.name for field in dataclasses.fields(owner) if field.name != "_target_"]
    close = get_close_matches(key, keys, n=1)
    return f"{place}: there is no {key!r} here" + (
        f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(keys) or 'no keys'}"
    )


def _unexplained(error: BaseException) -> str:
    """Hydra's own words, without the list of places where it looked, and with the override that it read."""
    override = getattr(error, "override", None)
    message = _joined(str(error).split("\nConfig search path:")[0])
    return f"{override}: {message}" if override else message


def _joined(message: str) -> str:
    return " ".join(part.strip() for part in message.splitlines() if part.strip())
