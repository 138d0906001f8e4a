"""Every installed plugin keeps its protocol and the output law; what breaks either is caught."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from specinfer import Draft, registry
from specinfer.protocols import ProposerContext, RequestView
from specinfer.testing.__main__ import main
from specinfer.testing.conformance import check, run_checks
from specinfer.testing.laws import BiasedVerifier
from tests.proposers import zoo

INSTALLED = [
    pytest.param(kind, name, marks=pytest.mark.slow if name == "wandb" else ())
    for kind in ("proposers", "verifiers", "controllers", "trackers")
    for name in registry.names(kind)
]


@pytest.mark.parametrize(("kind", "name"), INSTALLED)
def test_every_installed_plugin_conforms(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "proposers":
        check(kind, registry.resolve(kind, name))
        return
    for variant in zoo.ZOO[name]:

        def make(vocab_size: int, variant: str = variant) -> Any:
            monkeypatch.setattr("specinfer.llm._load", lambda config: zoo.load_draft_model(vocab_size))
            return zoo.make(name, variant, vocab_size=vocab_size, num_draft_tokens=3)

        check(kind, make, target=zoo.target)


@dataclass
class RepeatProposer:
    """A plugin as an outsider writes it: guess that the last token comes again."""

    num_draft_tokens: int = 2

    def bind(self, context: ProposerContext) -> None:
        pass

    def start(self, request: RequestView) -> None:
        pass

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return [Draft([int(r.token_ids[-1])] * n) for r, n in zip(requests, num_draft_tokens, strict=True)]

    def stop(self, request_id: str) -> None:
        pass


def test_an_out_of_tree_proposer_conforms_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["proposers", f"{__name__}:RepeatProposer"]) == 0
    assert "FAILED" not in capsys.readouterr().out


@dataclass
class TooLongProposer(RepeatProposer):
    """Drafts one token more than asked."""

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return super().propose(requests, [n + 1 for n in num_draft_tokens])


@dataclass
class RaisingProposer(RepeatProposer):
    """Raises whenever it is asked."""

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("kind", "plugin", "broken"),
    [
        ("proposers", TooLongProposer, "greedy_tokens_equal_plain_decoding"),
        ("proposers", RaisingProposer, "greedy_tokens_equal_plain_decoding"),
        ("verifiers", BiasedVerifier, "sampled_law_is_the_targets (sampled drafts)"),
        ("verifiers", BiasedVerifier, "sampled_law_is_the_targets (one-hot drafts)"),
    ],
)
def test_a_broken_plugin_fails_the_check_that_names_its_fault(kind: str, plugin: type, broken: str) -> None:
    assert broken in {result.name for result in run_checks(kind, plugin) if not result.passed}


def test_an_unknown_plugin_is_a_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["proposers", "nope"]) == 2
    assert "unknown proposer 'nope'" in capsys.readouterr().err
