"""What can go wrong that a user can mend?

Every error here is a ValueError, names the offending value and says the way out. Broken invariants are
assertions instead: they are our faults, not the user's.
"""

from __future__ import annotations


class SpecinferError(ValueError):
    """Root of the errors that a user can mend."""


class ConfigError(SpecinferError):
    """A configuration that cannot work, whatever the requests."""


class RequestError(SpecinferError):
    """One request that cannot be served; the engine and the other requests go on."""


class GrammarError(RequestError):
    """A schema, pattern or grammar that is wrong, not supported, over a limit, or cannot go on."""


class UnsupportedModelError(SpecinferError):
    """A model that the paged engine would run wrongly, refused by name."""


class PluginError(SpecinferError):
    """A plugin that is unknown, fails to import, or broke its protocol."""


def check_count(
    name: str, value: object, low: int, *, optional: bool = False, error: type[SpecinferError] = ConfigError
) -> None:
    """Raise `error`, naming the field, unless `value` is an integer of at least `low` (or None, if optional)."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        wanted = "None or an integer" if optional else "an integer"
        raise error(f"{name} must be {wanted} of at least {low}, got {value!r}")
