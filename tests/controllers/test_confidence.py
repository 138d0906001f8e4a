from typing import Any

import pytest
import torch

from specinfer.controllers.confidence import ConfidenceController
from specinfer.errors import ConfigError
from specinfer.protocols import EngineLoad

UNSURE = torch.tensor([0.25, 0.25, 0.25, 0.25])
SURE = torch.tensor([0.0, 0.5, 0.25, 0.25])
ANY: Any = None


def test_a_draft_grows_while_the_most_likely_token_reaches_the_threshold() -> None:
    controller = ConfidenceController(threshold=0.5)
    assert controller.continues(ANY, 1, SURE)
    assert not controller.continues(ANY, 1, UNSURE)
    assert not controller.continues(ANY, 7, UNSURE)


def test_the_first_token_is_always_drafted() -> None:
    assert ConfidenceController(threshold=1.0).continues(ANY, 0, UNSURE)


def test_the_answer_does_not_depend_on_which_token_is_likely() -> None:
    controller = ConfidenceController(threshold=0.5)
    assert all(controller.continues(ANY, 1, SURE.roll(shift)) for shift in range(4))


@pytest.mark.parametrize("length", [None, 0, 5])
def test_the_length_asked_for_is_the_configured_one(length: Any) -> None:
    assert ConfidenceController(length=length).num_draft_tokens(ANY, EngineLoad(64, 100)) == length


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), True, "0.3", None])
def test_a_threshold_that_is_no_probability_is_refused(threshold: Any) -> None:
    with pytest.raises(ConfigError, match=r"controller\.threshold .*got"):
        ConfidenceController(threshold=threshold)


@pytest.mark.parametrize("length", [-1, 1.5, True, "4"])
def test_a_length_that_is_no_count_is_refused(length: Any) -> None:
    with pytest.raises(ConfigError, match=r"controller\.length .*got"):
        ConfidenceController(length=length)
