from typing import Any

import pytest

from specinfer.controllers.fixed import FixedController
from specinfer.errors import ConfigError
from specinfer.protocols import EngineLoad


@pytest.mark.parametrize("length", [None, 0, 5])
def test_the_answer_is_the_length_whatever_the_load_and_the_history(length: Any) -> None:
    controller = FixedController(length)
    for load in (EngineLoad(1, 0), EngineLoad(64, 100)):
        controller.observe(None, 4, 0)
        assert controller.num_draft_tokens(None, load) == length


@pytest.mark.parametrize("length", [-1, 1.5, True, "4"])
def test_a_length_that_is_no_count_is_refused(length: Any) -> None:
    with pytest.raises(ConfigError, match=r"controller\.length"):
        FixedController(length)
