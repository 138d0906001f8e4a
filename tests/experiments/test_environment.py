"""The environment is described, without naming the machine or its user."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
from pathlib import Path

from experiments.environment import describe_environment, git_state


def test_the_versions_that_matter_are_there_and_no_name_of_host_or_user() -> None:
    found = describe_environment()
    assert found["packages"]["torch"] and found["packages"]["specinfer"] == "0.1.0"
    assert found["num_threads"] >= 1
    text = json.dumps(found)
    assert socket.gethostname() not in text and str(Path.home()) not in text
    assert f'"{getpass.getuser()}"' not in text


def test_outside_a_checkout_there_is_no_git_state(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None


def test_a_change_makes_the_tree_dirty(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("commit", "-qm", "x")
    clean = git_state(tmp_path)
    assert clean is not None and clean["dirty"] is False and len(clean["commit"]) == 40
    (tmp_path / "f").write_text("2")
    dirty = git_state(tmp_path)
    assert dirty is not None and dirty["dirty"] is True
