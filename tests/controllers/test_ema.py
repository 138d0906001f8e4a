from types import SimpleNamespace
from typing import Any

import pytest

from specinfer.controllers.ema import EmaController
from specinfer.errors import ConfigError
from specinfer.protocols import EngineLoad

LOAD = EngineLoad(1, 0)


def _request(name: str = "a") -> Any:
    return SimpleNamespace(request_id=name)


def _lengths(controller: EmaController, share: float, num_steps: int, name: str = "a") -> list[int]:
    """The lengths asked for while `share` of every draft is accepted."""
    lengths = []
    for _ in range(num_steps):
        length = controller.num_draft_tokens(_request(name), LOAD)
        assert length is not None
        lengths.append(length)
        if length:
            controller.observe(_request(name), length, round(share * length))
    return lengths


def test_accepted_drafts_grow_by_one_a_step_up_to_the_maximum() -> None:
    assert _lengths(EmaController(initial_length=4, max_length=6), 1.0, 5) == [4, 5, 6, 6, 6]


def test_rejected_drafts_shrink_by_one_a_step_and_end_on_the_plain_path() -> None:
    assert _lengths(EmaController(initial_length=3, min_length=2), 0.0, 4) == [3, 2, 0, 0]


def test_between_low_and_high_the_length_stays() -> None:
    assert _lengths(EmaController(initial_length=4), 0.5, 6) == [4] * 6


def test_one_bad_draft_among_good_ones_does_not_shorten() -> None:
    controller = EmaController(initial_length=4, max_length=6)
    _lengths(controller, 1.0, 3)
    assert _lengths(controller, 0.0, 1) == [6]
    assert _lengths(controller, 1.0, 1) == [6]


def test_the_plain_path_probes_once_an_interval() -> None:
    lengths = _lengths(EmaController(initial_length=1, min_length=1, probe_interval=4), 0.0, 13)
    assert lengths == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_a_good_probe_brings_drafting_back_whatever_came_before() -> None:
    controller = EmaController(initial_length=2, min_length=2, max_length=4, probe_interval=3)
    assert _lengths(controller, 0.0, 10)[-3:] == [0, 0, 2]
    assert _lengths(controller, 1.0, 6) == [0, 0, 2, 2, 3, 4]


def test_requests_do_not_learn_from_each_other_and_are_forgotten() -> None:
    controller = EmaController(initial_length=4)
    _lengths(controller, 1.0, 4, "good")
    assert _lengths(controller, 0.0, 3, "bad") == [4, 3, 2]
    assert _lengths(controller, 1.0, 1, "good") == [8]
    controller.stop("good")
    assert _lengths(controller, 1.0, 1, "good") == [4]
    controller.stop("never seen")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"low": -0.1}, "low"),
        ({"high": 1.1}, "high"),
        ({"high": float("nan")}, "high"),
        ({"low": 0.8, "high": 0.7}, "low"),
        ({"decay": 1.0}, "decay"),
        ({"decay": True}, "decay"),
        ({"min_length": 0}, "min_length"),
        ({"max_length": 3}, "initial_length"),
        ({"min_length": 5}, "initial_length"),
        ({"initial_length": 2.0}, "initial_length"),
        ({"probe_interval": 0}, "probe_interval"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=rf"controller\.{name}"):
        EmaController(**fields)
