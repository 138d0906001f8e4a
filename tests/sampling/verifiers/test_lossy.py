"""What holds of `typical` and of `threshold` alike, and of each."""

import math
from typing import Any

import pytest
import torch

from specinfer.errors import ConfigError
from specinfer.protocols import OutputLaw, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.sampling.verifiers.threshold import ThresholdVerifier
from specinfer.sampling.verifiers.typical import TypicalVerifier
from specinfer.testing.laws import assert_same_law, enumerate_outcomes, output_law
from specinfer.types import Draft
from tests.sampling.verifiers.decoding import SHAPES, Decoding
from tests.sampling.verifiers.test_rejection import Recorder

LOSSY = {"typical": TypicalVerifier(), "threshold": ThresholdVerifier()}
P = torch.tensor(
    [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.7, 0.05], [0.0, 0.5, 0.5], [0.8, 0.1, 0.1]], dtype=torch.float64
)


def verify(verifier: Any, draft: Draft, *outcomes: int) -> tuple[Verdict, list[Any]]:
    recorder = Recorder(*outcomes)
    target = SampledRows(P[: len(draft.token_ids) + 1], recorder, frozenset())
    return verifier.verify([VerifyItem(target, draft, 7, 10)], recorder)[0], recorder.draws


@pytest.mark.parametrize("verifier", LOSSY)
@pytest.mark.parametrize("drafter", ["one_hot", "with_replacement", "one_hot_second"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_distance_is_that_of_p_from_the_law_of_the_token_given_the_draft(
    shape: str, drafter: str, verifier: str
) -> None:
    num_measured = 0
    for seed in range(3):
        decoding = Decoding(LOSSY[verifier], drafter, SHAPES[shape], seed)
        for draft in {
            tuple(d.token_ids): d for _, d in enumerate_outcomes(lambda r, d=decoding: d.draft((), r))
        }.values():
            outcomes = list(enumerate_outcomes(lambda r, d=decoding, draft=draft: d.verdict(draft, (), r)))
            path, distances = outcomes[0][1].path, outcomes[0][1].distances
            assert all((verdict.path, verdict.distances) == (path, distances) for _, verdict in outcomes)
            assert len(distances) == len(path) + 1
            for depth, distance in enumerate(distances):
                emitted = torch.zeros(decoding.shape.vocab_size, dtype=torch.float64)
                for weight, verdict in outcomes:
                    tokens = [*(draft.token_ids[node] for node in path), verdict.token_id]
                    emitted[tokens[depth]] += weight
                p = decoding.p(tuple(draft.token_ids[node] for node in path[:depth]))
                assert abs(distance - float((emitted - p).abs().sum()) / 2) < 1e-12
                num_measured += distance > 0
    assert num_measured


@pytest.mark.parametrize("verifier", LOSSY)
def test_the_distances_are_1_less_p_of_each_accepted_token_and_0_for_the_last(verifier: str) -> None:
    verdict, draws = verify(LOSSY[verifier], Draft([0, 1, 1]), 2)
    assert verdict == Verdict((0, 1, 2), 2, (0.5, 0.4, pytest.approx(0.3), 0.0))
    assert draws == [(Purpose.SAMPLE, 13, P[3].tolist())]


@pytest.mark.parametrize("verifier", LOSSY)
def test_a_fallen_draft_is_followed_by_a_plain_sample_of_its_position(verifier: str) -> None:
    verdict, draws = verify(LOSSY[verifier], Draft([0, 1, 2]), 2)
    assert verdict == Verdict((0, 1), 2, (0.5, 0.4, 0.0))
    assert draws == [(Purpose.SAMPLE, 12, P[2].tolist())]


@pytest.mark.parametrize("verifier", LOSSY)
def test_the_longest_standing_path_wins_and_of_equally_long_ones_the_first(verifier: str) -> None:
    longest = Draft([0, 1, 1, 0], parents=[-1, -1, 1, 2])  # 0 alone, or 1 and 1; a 0 behind node 2 is forbidden
    assert verify(LOSSY[verifier], longest, 0)[0].path == (1, 2)
    assert verify(LOSSY[verifier], Draft([1, 0], parents=[-1, -1]), 0)[0].path == (0,)


@pytest.mark.parametrize(
    "verifier", [*LOSSY.values(), TypicalVerifier(0.0), TypicalVerifier(1.0, 0.0), ThresholdVerifier(1e-9)]
)
def test_a_masked_token_never_stands(verifier: Any) -> None:
    verdict, _ = verify(verifier, Draft([0, 1, 1, 0]), 1)
    assert verdict.path == (0, 1, 2)


@pytest.mark.parametrize("verifier", LOSSY)
def test_greedy_requests_are_judged_by_match(verifier: str) -> None:
    target = GreedyRows([0, 2, 1], P[0], frozenset())
    item = VerifyItem(target, Draft([0, 1]), 0, 0)
    assert LOSSY[verifier].verify([item], Recorder()) == [Verdict((0,), 2)]


def test_typical_compares_p_with_the_lower_of_epsilon_and_delta_by_the_entropy() -> None:
    entropy = -sum(x * math.log(x) for x in P[0].tolist())
    for epsilon, delta, stands in (
        (0.3, 10.0, False),  # strict: p(x) = 0.3
        (0.29, 10.0, True),
        (1.0, 0.3 * math.exp(entropy) * 1.001, False),
        (1.0, 0.3 * math.exp(entropy) * 0.999, True),
    ):
        verdict, _ = verify(TypicalVerifier(epsilon, delta), Draft([1]), 0)
        assert bool(verdict.path) == stands


def test_threshold_lets_p_of_just_the_threshold_stand() -> None:
    for threshold, stands in ((0.3, True), (0.3 + 1e-9, False)):
        assert bool(verify(ThresholdVerifier(threshold), Draft([1]), 0)[0].path) == stands


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("verifier", [TypicalVerifier(1.0, 1e9), ThresholdVerifier(1.0)], ids=["typical", "threshold"])
def test_the_strictest_setting_is_exact(verifier: Any, shape: str) -> None:
    decoding = Decoding(verifier, "with_replacement", SHAPES[shape], 1)
    assert_same_law(output_law(decoding), decoding.expected_law())


def test_a_field_out_of_its_range_is_a_config_error() -> None:
    for make, message in (
        (lambda: TypicalVerifier(epsilon=1.5), r"verifier\.epsilon must be a number in \[0, 1\], got 1\.5"),
        (lambda: TypicalVerifier(epsilon=math.nan), r"verifier\.epsilon .* got nan"),
        (lambda: TypicalVerifier(delta=-0.1), r"verifier\.delta .* got -0\.1"),
        (lambda: TypicalVerifier(delta=True), r"verifier\.delta .* got True"),
        (lambda: ThresholdVerifier("0.3"), r"verifier\.threshold must be a number in \[0, 1\], got '0\.3'"),
        (lambda: ThresholdVerifier(0.0), r"verifier\.threshold must be more than 0, got 0\.0"),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


def test_they_declare_what_their_law_depends_on() -> None:
    assert TypicalVerifier().law == OutputLaw(is_exact=False, parameter="epsilon")
    assert ThresholdVerifier().law == OutputLaw(is_exact=False, parameter="threshold")


def test_the_randomness_is_not_asked_for_what_stands() -> None:
    def run(randomness: Randomness) -> int:
        target = SampledRows(P[:2], randomness, frozenset())
        return TypicalVerifier().verify([VerifyItem(target, Draft([0]), 0, 0)], randomness)[0].num_accepted

    assert {count for _, count in enumerate_outcomes(run)} == {1}
