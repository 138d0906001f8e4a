"""How do names on the command line become components?

Every installed plugin, and every class given as `pkg.module:Class`, is a choice of its Hydra group, its node derived
from its dataclass. Always true: defaults live in the dataclasses alone, YAML states choices; a plugin that fails to
import is named in a warning and harms no other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.settings import RunSettings
from experiments.workloads import EditPrompts, FormPrompts, HubDataset, JsonlFile, JsonSchemaFile, OwnPrompts
from specinfer import registry
from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, PluginError
from specinfer.types import SamplingParams

LOG = logging.getLogger(__name__)

HYDRA_VERSION_BASE = "1.3"
"""The one place that says which Hydra's defaults hold."""

PLUGIN_GROUPS: Mapping[str, str] = {
    "proposer": "proposers",
    "verifier": "verifiers",
    "controller": "controllers",
    "tracker": "trackers",
}
"""Config group -> kind in the registry."""

WORKLOADS: Mapping[str, type] = {
    "own": OwnPrompts,
    "edits": EditPrompts,
    "forms": FormPrompts,
    "json_schemas": JsonSchemaFile,
    "jsonl": JsonlFile,
    "hub": HubDataset,
}

_CHOICE = re.compile(r"^\+?(?P<group>\w+)=(?P<names>.*)$", re.DOTALL)


def register_configs(arguments: Sequence[str] = ()) -> None:
    """Store the schema, every installed plugin and the classes named in the command line's `arguments`."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=_root_node())
    store.store(group="model", name="engine", node=registry.node_of(EngineConfig))
    store.store(group="sampling", name="params", node=registry.node_of(SamplingParams))
    for name, workload in WORKLOADS.items():
        store.store(group="workload", name=name, node=registry.node_of(workload))
    for group, kind in PLUGIN_GROUPS.items():
        found, failed = registry.discover(kind)
        for name, cls in found.items():
            store.store(group=group, name=name, node=registry.node_of(cls))
        for message in failed.values():
            LOG.warning("%s: it is no choice here", message)
    for group, path in paths_in(arguments):
        store.store(group=group, name=path, node=registry.node_of(registry.resolve(PLUGIN_GROUPS[group], path)))


def paths_in(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The (group, `pkg.module:Class`) pairs of a command line; a sweep's comma-separated ones too."""
    found = []
    for argument in arguments:
        match = _CHOICE.match(argument)
        if match and match["group"] in PLUGIN_GROUPS:
            names = [name.strip().strip("'\"") for name in match["names"].split(",")]
            found += [(match["group"], name) for name in names if ":" in name and not name.startswith(("{", "["))]
    return found


def _root_node() -> type:
    from dataclasses import make_dataclass

    from omegaconf import MISSING

    run_node = registry.node_of(RunSettings)
    groups = ("model", "proposer", "verifier", "controller", "workload", "sampling", "tracker")
    return make_dataclass(
        "ExperimentConfig",
        [
            ("run", run_node, field(default_factory=run_node)),
            ("compare", dict[str, Any], field(default_factory=dict)),
            *[(group, Any, field(default=MISSING)) for group in groups],
        ],
    )


# ------------------------------------------------------------------------------------------------- components


@dataclass(frozen=True, slots=True)
class Method:
    """One way to decode, by name; a proposer of None is plain decoding."""

    name: str
    proposer: Any
    verifier: Any
    controller: Any
    is_free: bool = False
    """It leaves out the form that a request asks for: what constrained decoding is compared with"""


PLAIN = "plain"


def make(node: Any) -> Any:
    """The component of a node, its lists and enums plain; ConfigError names the node's place when it is refused."""
    from hydra.utils import instantiate

    return instantiate(node, _convert_="all")


def make_methods(config: Any) -> list[Method]:
    """Plain decoding, the run's own proposer unless it is `none`, and each entry of `compare`.

    Components hold state, so that every method gets its own.
    """
    methods = [_method(PLAIN, {"proposer": "none"}, config)]
    name = registry.name_of("proposers", make(config.proposer)).rpartition(":")[2]
    if name != "none":
        methods.append(_method(name, {}, config))
    for name, choices in config.compare.items():
        if name in {method.name for method in methods}:
            raise ConfigError(f"compare.{name}: the run already has a method of this name; give it another")
        methods.append(_method(str(name), choices, config))
    return methods


def _method(name: str, choices: Any, config: Any) -> Method:
    parts = ("proposer", "verifier", "controller")
    if not isinstance(choices, Mapping) or set(choices) - {*parts, "free"}:
        raise ConfigError(f"compare.{name} must be a mapping with the keys {', '.join(parts)} and free, got {choices}")
    is_free = choices.get("free", False)
    if not isinstance(is_free, bool):
        raise ConfigError(f"compare.{name}.free must be true or false, got {is_free!r}")
    proposer, verifier, controller = (
        make(_choice_node(part, choices[part], f"compare.{name}.{part}") if part in choices else config[part])
        for part in parts
    )
    shown = name if name == PLAIN else name + _lossy_mark(verifier)
    return Method(shown, proposer, verifier, controller, is_free)


def _lossy_mark(verifier: Any) -> str:
    """What tables, figures and reports add to the name of a method whose output law is not the target's."""
    law = verifier.law
    return "" if law.is_exact else f" (lossy, {law.parameter}={getattr(verifier, str(law.parameter), None)})"


def _choice_node(group: str, choice: Any, place: str) -> Any:
    """The node of a choice inside `compare`, checked like those of the command line."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    fields = {"_target_": choice} if isinstance(choice, str) else dict(choice)
    target = fields.pop("_target_", None)
    if not isinstance(target, str):
        raise ConfigError(f"{place} needs _target_: a short name or pkg.module:Class")
    try:
        cls = registry.resolve(PLUGIN_GROUPS[group], _as_path(target, PLUGIN_GROUPS[group]))
        return OmegaConf.merge(OmegaConf.structured(registry.node_of(cls)), fields)
    except (PluginError, OmegaConfBaseException) as error:
        raise ConfigError(f"{place}: {str(error).splitlines()[0]}") from error


def _as_path(target: str, kind: str) -> str:
    """`pkg.module.Class`, as Hydra writes it, as `pkg.module:Class`; short names and paths as they are."""
    if ":" in target or "." not in target or target in registry.names(kind):
        return target
    module, _, name = target.rpartition(".")
    return f"{module}:{name}"
