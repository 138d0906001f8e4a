"""Components are found by name or path, built, described and built again; a broken plugin harms no other."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest

from specinfer import PluginError, registry
from specinfer.testing.conformance import check

PLUGIN = """
from dataclasses import dataclass
from specinfer.types import Draft

@dataclass
class EchoProposer:
    num_draft_tokens: int = 2

    def bind(self, context): pass
    def start(self, request): pass
    def stop(self, request_id): pass
    def propose(self, requests, num_draft_tokens):
        return [Draft([int(r.token_ids[0])] * n) for r, n in zip(requests, num_draft_tokens)]

class NoDataclass: pass
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A foreign package as pip installs it: one good entry point, three broken ones."""
    (tmp_path / "foreign_plugin.py").write_text(PLUGIN)
    (tmp_path / "broken_plugin.py").write_text("import a_module_that_nobody_has\n")
    info = tmp_path / "foreign_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[specinfer.proposers]\necho = foreign_plugin:EchoProposer\nbroken = broken_plugin:Any\n"
        "missing = foreign_plugin:Nothing\nplain = foreign_plugin:NoDataclass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry._entry_points.cache_clear()
    yield tmp_path
    registry._entry_points.cache_clear()
    sys.modules.pop("foreign_plugin", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_plugin_is_found_by_its_name_and_conforms() -> None:
    assert {"echo", "ngram"} <= set(registry.names("proposers"))
    echo = registry.build("proposers", "echo")
    assert registry.name_of("proposers", echo) == "echo"
    check("proposers", type(echo))


@pytest.mark.usefixtures("installed")
def test_plugins_that_fail_are_named_and_harm_no_other() -> None:
    found, failed = registry.discover("proposers")
    assert {"echo", "ngram", "none"} <= set(found)
    assert set(failed) == {"broken", "missing", "plain"}
    assert "'broken' failed to import" in failed["broken"]
    assert "a_module_that_nobody_has" in failed["broken"]
    assert "not a dataclass" in failed["plain"]
    with pytest.raises(PluginError, match="'broken' failed to import"):
        registry.build("proposers", "broken")


@pytest.mark.usefixtures("installed")
def test_an_uninstalled_class_is_found_by_its_path() -> None:
    assert registry.resolve("proposers", "foreign_plugin:EchoProposer").__name__ == "EchoProposer"
    with pytest.raises(PluginError, match="nowhere"):
        registry.resolve("proposers", "nowhere.at.all:Thing")


def test_an_unknown_name_or_kind_lists_the_known_ones() -> None:
    with pytest.raises(PluginError, match=r"unknown proposer 'eagel'; installed: .*ngram"):
        registry.resolve("proposers", "eagel")
    with pytest.raises(PluginError, match="unknown kind"):
        registry.names("proposer")


class Colour(Enum):
    RED = "red"


@dataclass
class Inner:
    size: int = 3


@dataclass
class Outer:
    """A component with every kind of field."""

    needed: int
    colour: Colour = Colour.RED
    maybe: float | None = None
    names: list[str] = field(default_factory=list)
    inner: Inner = field(default_factory=Inner)
    odd: int | str = 1
    state: int = field(init=False, default=0)


def test_a_node_has_the_init_fields_with_their_defaults_and_types() -> None:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    node = OmegaConf.structured(registry.node_of(Outer))
    assert set(node) == {"_target_", "needed", "colour", "maybe", "names", "inner", "odd"}
    assert OmegaConf.is_missing(node, "needed")
    assert node.inner.size == 3
    for key, value in (("needed", "many"), ("colour", "BLUE"), ("typo", 1)):
        with pytest.raises(OmegaConfBaseException):
            OmegaConf.merge(node, {key: value})


def test_what_is_described_builds_the_same_component() -> None:
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    component = Outer(needed=5, maybe=0.5, names=["a"], inner=Inner(7), odd="x")
    described = registry.describe(component)
    assert described["colour"] == "RED"
    merged = OmegaConf.merge(OmegaConf.structured(registry.node_of(Outer)), described)
    assert instantiate(merged, _convert_="all") == component
