"""What goes wrong with one request, or in a plugin, stays there: the others never notice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from specinfer import LLM, CacheConfig, Draft, EngineConfig, FinishReason, SamplingParams
from specinfer.protocols import EngineLoad, OutputLaw, Randomness, RequestView, Verdict, VerifyItem
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import ScriptedProposer
from specinfer.testing.reference import greedy_continuation, oracle_script

LOADED = tiny_loaded_model(vocab_size=8, max_model_len=128, order=2)
MODEL: Any = LOADED.model
CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=100))
PROMPTS = [[1, 2, 3], [7, 7, 7, 7], [4, 1]]
GREEDY = SamplingParams(temperature=0, max_tokens=20)
VICTIM = 7
"""The first token of the prompt whose request meets the fault."""


def _expected() -> list[list[int]]:
    return [greedy_continuation(MODEL, prompt, 20) for prompt in PROMPTS]


@dataclass
class FaultyProposer(ScriptedProposer):
    """Right for every request but the victim's, where it returns or raises what `fault` says."""

    script: Any = None
    fault: Callable[[int], Any] = lambda length: None

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Any]:
        good = oracle_script(MODEL)
        return [
            self.fault(length) if request.token_ids[0] == VICTIM else Draft(good(request.token_ids.tolist(), length))
            for request, length in zip(requests, num_draft_tokens, strict=True)
        ]


def _raise(length: int) -> Draft:
    raise RuntimeError("a bug in the drafter")


def _probs(row: list[float]) -> Callable[[int], Draft]:
    return lambda length: Draft([0], probs=torch.tensor([row], dtype=torch.float64))


FAULTS: dict[str, tuple[Callable[[int], Any], str]] = {
    "raises": (_raise, "a bug in the drafter"),
    "id above the vocabulary": (lambda length: Draft([8]), "leave the vocabulary"),
    "placeholder id": (lambda length: Draft([0, -1]), "leave the vocabulary"),
    "more than asked": (lambda length: Draft([0] * (length + 1)), "at most"),
    "no integers": (lambda length: Draft([0.5]), "integers"),  # type: ignore[list-item]
    "no draft": (lambda length: "abc", "AttributeError"),
    "NaN in q": (_probs([float("nan")] + [0.0] * 7), "NaN"),
    "negative q": (_probs([1.5, -0.5] + [0.0] * 6), "negative"),
    "q sums to 2": (_probs([1.0, 1.0] + [0.0] * 6), "sum to 1"),
    "q of another vocabulary": (_probs([1.0, 0.0]), "shape"),
    "token with q = 0": (_probs([0.0, 1.0] + [0.0] * 6), "q = 0"),
    "provenance too short": (lambda length: Draft([0], provenance=[]), "provenance"),
    "parents too short": (lambda length: Draft([0, 1], parents=[-1]), "parents has 1 entries"),
    "parents in a loop": (lambda length: Draft([0, 1], parents=[1, 0]), "node 0 follows 1"),
    "its own parent": (lambda length: Draft([0, 1], parents=[-1, 1]), "node 1 follows 1"),
    "a parent out of range": (lambda length: Draft([0, 1], parents=[-1, -2]), "node 1 follows -2"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_draft_costs_its_request_the_drafts_and_nothing_else(name: str) -> None:
    fault, message = FAULTS[name]
    llm = LLM(CONFIG, FaultyProposer(fault=fault), loaded_model=LOADED)
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [output.outputs[0].token_ids for output in outputs] == _expected()
    assert outputs[1].draft_error is not None
    assert message in outputs[1].draft_error
    assert "FaultyProposer" in outputs[1].draft_error
    assert [output.stats.num_draft_errors for output in outputs] == [0, 1, 0]
    assert outputs[0].stats.num_accepted_tokens > 0
    assert outputs[0].draft_error is outputs[2].draft_error is None
    assert llm.engine.drafter.num_errors >= 1


@pytest.mark.parametrize("method", ["start", "stop"])
def test_a_proposer_that_raises_in_its_bookkeeping_harms_no_output(method: str) -> None:
    proposer = ScriptedProposer(oracle_script(MODEL))
    setattr(proposer, method, lambda *arguments: 1 / 0)
    outputs = LLM(CONFIG, proposer, loaded_model=LOADED).generate(PROMPTS, GREEDY)
    assert [output.outputs[0].token_ids for output in outputs] == _expected()
    assert all(output.draft_error and "ZeroDivisionError" in output.draft_error for output in outputs)


@dataclass
class FaultyController:
    """Raises for the victim at one of its methods, or gives it a draft length that is none."""

    method: str
    victim_length: Any = 3

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int:
        if self.method == "num_draft_tokens" and request.token_ids[0] == VICTIM:
            raise RuntimeError("a bug in the controller")
        length: int = self.victim_length if request.token_ids[0] == VICTIM else 3
        return length

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        if self.method == "observe" and request.token_ids[0] == VICTIM:
            raise RuntimeError("a bug in the controller")

    def stop(self, request_id: str) -> None:
        pass


@pytest.mark.parametrize("method", ["num_draft_tokens", "observe"])
def test_a_controller_that_raises_is_named_and_its_request_goes_on_plain(method: str) -> None:
    llm = LLM(CONFIG, ScriptedProposer(oracle_script(MODEL)), controller=FaultyController(method), loaded_model=LOADED)
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [output.outputs[0].token_ids for output in outputs] == _expected()
    assert "FaultyController" in str(outputs[1].draft_error)
    assert outputs[0].draft_error is None


@pytest.mark.parametrize("length", ["3", 2.5, [3]])
def test_a_draft_length_that_is_no_integer_is_its_plugins_fault(length: Any) -> None:
    controller, proposer = FaultyController("none", length), ScriptedProposer(oracle_script(MODEL))
    outputs = LLM(CONFIG, proposer, controller=controller, loaded_model=LOADED).generate(PROMPTS, GREEDY)
    assert [output.outputs[0].token_ids for output in outputs] == _expected()
    assert "FaultyController: TypeError" in str(outputs[1].draft_error)
    assert outputs[0].stats.num_accepted_tokens > 0

    proposer = ScriptedProposer(oracle_script(MODEL), num_draft_tokens=length)
    outputs = LLM(CONFIG, proposer, loaded_model=LOADED).generate(PROMPTS, GREEDY)
    assert [output.outputs[0].token_ids for output in outputs] == _expected()
    assert all("ScriptedProposer: TypeError" in str(output.draft_error) for output in outputs)


@dataclass
class FaultyVerifier:
    """Raises, or gives an impossible verdict, on any batch that holds the victim."""

    verdict: Verdict | None = None

    @property
    def law(self) -> OutputLaw:
        return OutputLaw(is_exact=True)

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        verdicts = []
        for item in items:
            if item.seed == VICTIM:
                if self.verdict is None:
                    raise RuntimeError("a bug in the verifier")
                verdicts.append(self.verdict)
            else:
                verdicts.append(Verdict((), item.target.sample(0, item.key(0, 0))))  # type: ignore[arg-type]
        return verdicts


@pytest.mark.parametrize(
    "verdict",
    [None, Verdict((1,), 0), Verdict((0, 0), 0), Verdict((99,), 0), Verdict((), -1), Verdict((), 8), Verdict((), 0.5)],
)  # type: ignore[arg-type]
def test_a_verifier_that_fails_on_a_request_ends_that_request_with_an_error(verdict: Verdict | None) -> None:
    params = [SamplingParams(temperature=0, max_tokens=20, seed=seed) for seed in (0, VICTIM, 1)]
    llm = LLM(CONFIG, ScriptedProposer(oracle_script(MODEL)), FaultyVerifier(verdict), loaded_model=LOADED)
    outputs = llm.generate(PROMPTS, params)
    assert outputs[1].error is not None
    assert "FaultyVerifier" in outputs[1].error
    assert outputs[1].outputs[0].finish_reason is FinishReason.ERROR
    assert [outputs[i].outputs[0].token_ids for i in (0, 2)] == [_expected()[0], _expected()[2]]
    llm.engine.check_integrity()


@pytest.mark.parametrize("proposer", [None, ScriptedProposer(oracle_script(MODEL, wrong_every=100))])
def test_a_logits_processor_that_raises_ends_its_request_at_the_same_token_with_and_without_drafts(
    proposer: Any,
) -> None:
    def explode(output: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        if len(output) == 9:
            raise RuntimeError("a bug in the processor")
        return logits

    bad = SamplingParams(temperature=0, max_tokens=20, logits_processors=[explode])
    llm = LLM(CONFIG, proposer, loaded_model=LOADED)
    outputs = llm.generate(PROMPTS, [GREEDY, bad, GREEDY])
    assert "a bug in the processor" in str(outputs[1].error)
    assert outputs[1].outputs[0].token_ids == _expected()[1][:9]
    assert [outputs[i].outputs[0].token_ids for i in (0, 2)] == [_expected()[0], _expected()[2]]
    assert llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].token_ids == _expected()[0], "the engine goes on"
