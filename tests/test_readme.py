"""What the README shows works as it stands there."""

import re
import sys
import types
from pathlib import Path

import pytest

from specinfer.testing.conformance import check

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_plugin_example_is_short_and_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    source = BLOCKS[1]
    assert len(source.splitlines()) <= 40
    module = types.ModuleType("mine")
    monkeypatch.setitem(sys.modules, "mine", module)
    exec(source, module.__dict__)
    check("proposers", module.RepeatProposer)


@pytest.mark.demo
def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    source = BLOCKS[0]
    assert len(source.splitlines()) <= 20
    exec(source, {})
    assert "drafted tokens were accepted" in capsys.readouterr().out


def test_every_path_that_it_names_exists() -> None:
    root = Path(__file__).parent.parent
    named = re.findall(r"`((?:docs|experiments|tests)/[\w/.]+)`", README) + re.findall(r"\]\(([\w/.]+)\)", README)
    assert named
    assert all((root / path).exists() for path in named)
