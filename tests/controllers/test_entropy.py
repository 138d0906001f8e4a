import math
from typing import Any

import pytest
import torch

from specinfer.controllers.entropy import EntropyController
from specinfer.errors import ConfigError
from specinfer.protocols import EngineLoad

FOUR = torch.tensor([0.25, 0.25, 0.25, 0.25], dtype=torch.float64)
TWO_OF_FOUR = torch.tensor([0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
ANY: Any = None


def test_a_draft_grows_while_the_entropy_in_nats_stays_within_the_limit() -> None:
    for probs, entropy in ((FOUR, math.log(4)), (TWO_OF_FOUR, math.log(2))):
        assert EntropyController(max_entropy=entropy + 1e-9).continues(ANY, 1, probs)
        assert not EntropyController(max_entropy=entropy - 1e-9).continues(ANY, 1, probs)


def test_a_one_hot_law_always_lets_a_draft_grow() -> None:
    assert EntropyController(max_entropy=0.0).continues(ANY, 3, torch.eye(4)[2])


def test_the_first_token_is_always_drafted() -> None:
    assert EntropyController(max_entropy=0.0).continues(ANY, 0, FOUR)


@pytest.mark.parametrize("length", [None, 0, 5])
def test_the_length_asked_for_is_the_configured_one(length: Any) -> None:
    assert EntropyController(length=length).num_draft_tokens(ANY, EngineLoad(64, 100)) == length


@pytest.mark.parametrize("max_entropy", [-0.1, math.inf, math.nan, True, "2", None])
def test_a_limit_that_is_no_entropy_is_refused(max_entropy: Any) -> None:
    with pytest.raises(ConfigError, match=r"controller\.max_entropy .*got"):
        EntropyController(max_entropy=max_entropy)


@pytest.mark.parametrize("length", [-1, 1.5, True, "4"])
def test_a_length_that_is_no_count_is_refused(length: Any) -> None:
    with pytest.raises(ConfigError, match=r"controller\.length .*got"):
        EntropyController(length=length)
