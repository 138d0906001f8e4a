"""A made-up world with known costs and acceptance, in which the best length is known too."""

import random
from collections.abc import Callable
from functools import cache
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from specinfer.controllers.fixed import FixedController
from specinfer.controllers.goodput import GoodputController
from specinfer.errors import ConfigError
from specinfer.protocols import EngineLoad, StepCost

Cost = Callable[[int, int], tuple[float, float, float]]
"""(tokens of the forward, length asked for) -> seconds of drafting, forward, the rest."""


def memory_bound(num_tokens: int, length: int) -> tuple[float, float, float]:
    return 0.0005 * length, 0.020 + 0.00005 * num_tokens, 0.001


def compute_bound(num_tokens: int, length: int) -> tuple[float, float, float]:
    return 0.0001 * length, 0.005 + 0.001 * num_tokens, 0.001


def dear_drafter(num_tokens: int, length: int) -> tuple[float, float, float]:
    return 0.008 * length, 0.020 + 0.00005 * num_tokens, 0.001


class World:
    """An engine without a model: each draft token is accepted with a given probability, each step takes a given time.

    slow_every: every so many steps one takes 20 times as long, without counting in the result.
    found: the share of requests for which the drafter has anything.
    """

    def __init__(
        self, controller: Any, cost: Cost, batch: int, *, slow_every: int = 0, found: float = 1.0, seed: int = 7
    ) -> None:
        self.controller, self.cost, self.slow_every, self.found = controller, cost, slow_every, found
        self.requests = [SimpleNamespace(request_id=str(i)) for i in range(batch)]
        self.lengths = [0] * batch
        self.random = random.Random(seed)
        self.num_steps = 0

    def run(self, num_steps: int, acceptance: float, *, has_prefill: bool = False) -> float:
        """Tokens a second over so many steps."""
        num_tokens, seconds = 0, 0.0
        for _ in range(num_steps):
            tokens, step_s = self._step(acceptance, has_prefill)
            num_tokens, seconds = num_tokens + tokens, seconds + step_s
        return num_tokens / seconds

    def _step(self, acceptance: float, has_prefill: bool) -> tuple[int, float]:
        batch, drafts = len(self.requests), [k if self.random.random() < self.found else 0 for k in self.lengths]
        num_accepted = 0
        for request, length in zip(self.requests, drafts, strict=True):
            accepted = 0
            while accepted < length and self.random.random() < acceptance:
                accepted += 1
            num_accepted += accepted
            if length:
                self.controller.observe(request, length, accepted)
        times = self.cost(batch + sum(drafts), max(self.lengths))
        self.num_steps += 1
        slow = 20 if self.slow_every and self.num_steps % self.slow_every == 0 else 1
        self.lengths = [self.controller.num_draft_tokens(r, EngineLoad(batch, 0)) for r in self.requests]
        draft_s, forward_s, other_s = (slow * part for part in times)
        num_tokens = batch + sum(drafts)
        cost = StepCost(batch, num_tokens, sum(drafts), max(drafts), has_prefill, draft_s, forward_s, other_s)
        if hasattr(self.controller, "observe_step"):
            self.controller.observe_step(cost)
        return batch + num_accepted, sum(times)


def goodput(controller: Any, cost: Cost, batch: int, acceptance: float, num_steps: int = 400, **fields: Any) -> float:
    return World(controller, cost, batch, **fields).run(num_steps, acceptance)


@cache
def best_fixed(cost: Cost, batch: int, acceptance: float, **fields: Any) -> float:
    num_steps = 200 + 4000 // batch
    return max(goodput(FixedController(k), cost, batch, acceptance, num_steps, **fields) for k in range(9))


@pytest.mark.parametrize("acceptance", [0.02, 0.3, 0.6])
@pytest.mark.parametrize("batch", [16, 32])
def test_where_plain_is_best_almost_nothing_is_lost(batch: int, acceptance: float) -> None:
    plain = goodput(FixedController(0), compute_bound, batch, acceptance)
    assert best_fixed(compute_bound, batch, acceptance) == pytest.approx(plain)
    assert goodput(GoodputController(), compute_bound, batch, acceptance) >= 0.98 * plain


def test_useless_drafts_are_given_up_within_a_few_steps() -> None:
    world = World(GoodputController(), compute_bound, 32)
    world.run(12, 0.05)
    lengths = []
    for _ in range(80):
        world.run(1, 0.05)
        lengths.append(world.lengths[0])
    assert set(lengths) == {0}


@pytest.mark.parametrize(("cost", "acceptance"), [(memory_bound, 0.6), (memory_bound, 0.8), (dear_drafter, 0.8)])
@pytest.mark.parametrize("batch", [1, 8])
def test_where_speculation_pays_it_comes_close_to_the_best_fixed_length(
    cost: Cost, acceptance: float, batch: int
) -> None:
    best = best_fixed(cost, batch, acceptance)
    assert best > 1.2 * goodput(FixedController(0), cost, batch, acceptance)
    ours = [goodput(GoodputController(), cost, batch, acceptance, seed=seed) for seed in range(1 + 7 // batch)]
    assert mean(ours) >= 0.95 * best


@pytest.mark.parametrize(("before", "after"), [(0.05, 0.8), (0.8, 0.05)])
@pytest.mark.parametrize(("cost", "batch"), [(memory_bound, 1), (dear_drafter, 32)])
def test_it_follows_when_acceptance_changes(cost: Cost, batch: int, before: float, after: float) -> None:
    ours = []
    for seed in range(1 + 7 // batch):  # a batch of one is noisy
        world = World(GoodputController(), cost, batch, seed=seed)
        world.run(400, before)
        world.run(250, after)
        ours.append(world.run(150, after))
    assert mean(ours) >= 0.95 * best_fixed(cost, batch, after)


def test_one_look_is_enough_to_see_that_drafts_are_worth_it_again() -> None:
    world = World(GoodputController(revisit_interval=100), dear_drafter, 32)
    world.run(400, 0.05)
    world.run(115, 0.8)
    assert all(world.lengths)


def test_without_step_times_it_still_follows_acceptance() -> None:
    controller = GoodputController()
    World(controller, memory_bound, 8).run(100, 0.9)
    blind = SimpleNamespace(num_draft_tokens=controller.num_draft_tokens, observe=controller.observe)
    world = World(blind, memory_bound, 8)
    world.run(2, 0.9)
    assert all(world.lengths)
    world.run(200, 0.0)
    assert not any(world.lengths)


def test_slow_steps_mislead_nobody() -> None:
    best = best_fixed(memory_bound, 8, 0.8)
    assert goodput(GoodputController(), memory_bound, 8, 0.8, slow_every=5) >= 0.93 * best
    plain = goodput(FixedController(0), compute_bound, 32, 0.3)
    assert goodput(GoodputController(), compute_bound, 32, 0.3, slow_every=5) >= 0.97 * plain


def test_a_drafter_that_rarely_finds_anything_is_worth_asking_where_that_is_cheap() -> None:
    best = best_fixed(memory_bound, 32, 0.8, found=0.3)
    assert best > 1.3 * goodput(FixedController(0), memory_bound, 32, 0.8)
    assert goodput(GoodputController(), memory_bound, 32, 0.8, found=0.3) >= 0.95 * best


def test_a_drafter_that_never_finds_anything_costs_almost_nothing() -> None:
    plain = goodput(FixedController(0), dear_drafter, 4, 0.8)
    assert goodput(GoodputController(), dear_drafter, 4, 0.8, found=0.0) >= 0.98 * plain


def test_a_batch_that_changes_its_size_takes_its_own_best_length() -> None:
    controller = GoodputController()
    World(controller, compute_bound, 1).run(300, 0.8)
    assert World(controller, compute_bound, 32).run(300, 0.8) >= 0.97 * best_fixed(compute_bound, 32, 0.8)
    assert World(controller, compute_bound, 1).run(600, 0.8) >= 0.93 * best_fixed(compute_bound, 1, 0.8)


def test_all_requests_of_a_step_get_the_same_length() -> None:
    world = World(GoodputController(), memory_bound, 8)
    seen = set()
    for _ in range(100):
        world.run(1, 0.7)
        assert len(set(world.lengths)) == 1
        seen.add(world.lengths[0])
    assert len(seen) > 2


def test_steps_with_prefill_teach_no_costs_and_start_no_drafting() -> None:
    controller = GoodputController()
    world = World(controller, memory_bound, 8)
    for _ in range(50):
        world.run(1, 0.9, has_prefill=True)
        assert not any(world.lengths)
    world.run(100, 0.9)
    assert any(world.lengths)


def test_trials_hidden_by_prefill_are_paid_for_too() -> None:
    world = World(GoodputController(), compute_bound, 32)
    world.run(2, 0.9)
    num_drafting = 0
    for _ in range(100):
        world.run(1, 0.9, has_prefill=True)
        num_drafting += any(world.lengths)
    assert 0 < num_drafting <= 8


def test_no_trial_is_made_that_could_cost_more_than_the_account_holds() -> None:
    world = World(GoodputController(exploration=0.0), compute_bound, 32)
    world.run(20, 0.0)
    lost_s = 0.0
    for _ in range(1000):
        length = world.lengths[0]
        lost_s += sum(compute_bound(32 * (1 + length), length)) - sum(compute_bound(32, 0))
        world.run(1, 0.0)
    assert lost_s <= 3 * sum(compute_bound(32, 0))


def test_a_profile_that_shows_no_room_keeps_trials_short() -> None:
    steep = [[1, 0.001], [32, 0.032], [64, 0.640], [288, 2.88]]
    controller = GoodputController(profile=steep)
    world = World(controller, lambda num_tokens, length: (0.0, 0.032 if num_tokens == 32 else 0.64, 0.0), 32)
    for _ in range(200):
        world.run(1, 0.8)
        assert not any(world.lengths)


def test_a_maximum_of_zero_drafts_nothing() -> None:
    world = World(GoodputController(max_length=0), memory_bound, 1)
    for _ in range(150):
        world.run(1, 0.9)
        assert world.lengths == [0]


def test_finished_requests_are_forgotten() -> None:
    controller = GoodputController()
    world = World(controller, memory_bound, 4)
    world.run(50, 0.9)
    assert controller._asked
    for request in world.requests:
        controller.stop(request.request_id)
    assert not controller._asked


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_length": -1}, "max_length"),
        ({"max_length": 2.0}, "max_length"),
        ({"decay": 1.0}, "decay"),
        ({"decay": float("nan")}, "decay"),
        ({"warmup": 0}, "warmup"),
        ({"exploration": -0.1}, "exploration"),
        ({"revisit_interval": True}, "revisit_interval"),
        ({"profile": 3}, "profile"),
        ({"profile": "fast"}, "profile"),
        ({"profile": [[1]]}, "profile"),
        ({"profile": [[0, 0.1]]}, "profile"),
        ({"profile": [[1.5, 0.1]]}, "profile"),
        ({"profile": [[1, 0.0]]}, "profile"),
        ({"profile": [[1, float("nan")]]}, "profile"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=rf"controller\.{name} .*got"):
        GoodputController(**fields)
