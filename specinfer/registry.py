"""How does a name or a dotted path become a component, and a component a record?

A component is a dataclass: its init fields are its configuration. `build` makes one, `node_of` derives its Hydra node,
`describe` is the inverse. Always true: a plugin that fails to import is reported by name and harms no other.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from specinfer.errors import PluginError

KINDS = ("proposers", "verifiers", "controllers", "grammars", "trackers")


@cache  # reading every installed package's metadata takes milliseconds
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    if kind not in KINDS:
        raise PluginError(f"unknown kind of component {kind!r}; known: {', '.join(KINDS)}")
    return {point.name: point for point in entry_points(group=f"specinfer.{kind}")}


def names(kind: str) -> list[str]:
    """Short names installed for `kind`, sorted; nothing is imported."""
    return sorted(_entry_points(kind))


def discover(kind: str) -> tuple[dict[str, type], dict[str, str]]:
    """Import every plugin of `kind`: the classes by name, and the errors of those that failed, by name."""
    found: dict[str, type] = {}
    failed: dict[str, str] = {}
    for name in names(kind):
        try:
            found[name] = resolve(kind, name)
        except PluginError as error:
            failed[name] = str(error)
    return found, failed


def resolve(kind: str, name: str) -> type:
    """The class behind a short name or `pkg.module:Class`; PluginError when there is none or its import fails."""
    points = _entry_points(kind)
    try:
        if name in points:
            target = points[name].load()
        elif ":" in name:
            module, _, attribute = name.partition(":")
            target = getattr(importlib.import_module(module), attribute)
        else:
            raise PluginError(
                f"unknown {kind.removesuffix('s')} {name!r}; installed: {', '.join(sorted(points)) or 'none'}; "
                f"or give pkg.module:Class"
            )
    except PluginError:
        raise
    except Exception as error:  # whatever a foreign module raises while it loads
        raise PluginError(
            f"{kind.removesuffix('s')} {name!r} failed to import: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(target, type) and dataclasses.is_dataclass(target)):
        raise PluginError(
            f"{kind.removesuffix('s')} {name!r} is {target!r}, not a dataclass; a component is a dataclass"
        )
    return target


def build(kind: str, spec: Any) -> Any:
    """A component from a short name, `pkg.module:Class` or a ready instance."""
    return resolve(kind, spec)() if isinstance(spec, str) else spec


def name_of(kind: str, component: object) -> str:
    """The short name of a component's class, or its dotted path where it has none."""
    path = _path(type(component))
    for name, point in _entry_points(kind).items():
        if point.value == path:
            return name
    return path


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def describe(component: object) -> Any:
    """The configuration of a component as plain data: its init fields, nested, and `_target_`."""
    if dataclasses.is_dataclass(component) and not isinstance(component, type):
        fields = {f.name: describe(getattr(component, f.name)) for f in dataclasses.fields(component) if f.init}
        return {"_target_": _path(type(component)).replace(":", "."), **fields}
    if isinstance(component, Enum):
        return component.name  # the form that a Hydra override takes
    if isinstance(component, Mapping):
        return {key: describe(value) for key, value in component.items()}
    if isinstance(component, Sequence) and not isinstance(component, str):
        return [describe(value) for value in component]
    return component if component is None or isinstance(component, bool | int | float | str) else repr(component)


_PLAIN_TYPES = (bool, int, float, str, bytes)


def node_of(cls: type) -> type:
    """The Hydra structured-config node of a component: its init fields and defaults, nested, plus `_target_`.

    Types that OmegaConf cannot hold (callables, unions beyond Optional) become Any; the component's own validation
    still applies when the node is instantiated.
    """
    hints = typing.get_type_hints(cls)
    fields: list[tuple[str, Any, Any]] = [("_target_", str, dataclasses.field(default=_path(cls).replace(":", ".")))]
    for item in dataclasses.fields(cls):
        if item.init:
            hint, default = _node_field(hints[item.name], item)
            fields.append((item.name, hint, default))
    return dataclasses.make_dataclass(f"{cls.__name__}Node", fields)


def _node_field(hint: Any, item: dataclasses.Field[Any]) -> tuple[Any, Any]:
    from omegaconf import MISSING

    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        node = node_of(hint)
        return node, dataclasses.field(default_factory=node)
    if item.default_factory is not dataclasses.MISSING:
        return _node_type(hint), dataclasses.field(default_factory=item.default_factory)
    if item.default is dataclasses.MISSING:
        return _node_type(hint), dataclasses.field(default=MISSING)
    return _node_type(hint), dataclasses.field(default=item.default)


def _node_type(hint: Any) -> Any:
    """`hint` where OmegaConf can check it (plain types, enums, Optional and lists of them), else Any."""
    if isinstance(hint, type) and (hint in _PLAIN_TYPES or issubclass(hint, Enum)):
        return hint
    arguments = typing.get_args(hint)
    without_none = [a for a in arguments if a is not type(None)]
    if len(without_none) == 1 and len(arguments) == 2 and type(None) in arguments:
        inner = _node_type(without_none[0])
        return Any if inner is Any else inner | None
    if typing.get_origin(hint) is list and _node_type(arguments[0]) is not Any:
        return hint
    return Any
