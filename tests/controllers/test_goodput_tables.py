import pytest

from specinfer.controllers.goodput_tables import MAX_COUNTS, Acceptance, CostTable, Curve


def _curve(*points: tuple[int, float]) -> Curve:
    curve = Curve()
    for count, seconds in points:
        curve.add(count, seconds)
    return curve


def test_between_measured_counts_time_is_linear() -> None:
    curve = _curve((10, 1.0), (20, 3.0))
    assert [curve.seconds(n, at_worst=w) for n in (10, 15, 20) for w in (True, False)] == [1, 1, 2, 2, 3, 3]


def test_beyond_measured_counts_time_is_constant_at_best_and_proportional_at_worst() -> None:
    curve = _curve((10, 1.0), (20, 3.0))
    assert (curve.seconds(40, at_worst=False), curve.seconds(40, at_worst=True)) == (3.0, 6.0)
    assert (curve.seconds(5, at_worst=False), curve.seconds(5, at_worst=True)) == (0.5, 1.0)


def test_time_never_falls_with_the_count() -> None:
    curve = _curve((1, 1.0), (2, 5.0), (3, 1.0), (4, 4.0))
    seconds = [curve.seconds(n, at_worst=True) for n in range(1, 6)]
    assert seconds == sorted(seconds)
    assert seconds[1] == pytest.approx(3.0)  # 5 and 1 pooled
    assert seconds[1] == seconds[2]


def test_a_slow_measurement_does_not_move_the_estimate() -> None:
    assert _curve((1, 9.0), (1, 1.0)).seconds(1, at_worst=True) == 1.0
    assert _curve((1, 1.0), (1, 1.1), (1, 50.0)).seconds(1, at_worst=True) == 1.1


def test_new_times_replace_old_ones() -> None:
    assert _curve(*[(1, 1.0)] * 50, *[(1, 2.0)] * 9).seconds(1, at_worst=True) == 2.0


def test_a_curve_keeps_the_counts_measured_latest() -> None:
    points = [(n, float(n)) for n in range(1, MAX_COUNTS + 1)]
    curve = _curve(*points, (1, 1.0), (1000, 1000.0))  # 1 is measured again, so 2 goes
    assert curve.seconds(1, at_worst=True) == 1.0
    assert curve._counts[:2] == [1, 3]


def test_an_unmeasured_draft_costs_between_the_shorter_one_and_its_multiple() -> None:
    costs = CostTable()
    costs.forward.add(4, 1.0)
    costs.add_overhead(0, 4, 0.1)
    at_best, at_worst = (costs.seconds(2, 4, 4, at_worst=w) for w in (False, True))
    assert (at_best, at_worst) == pytest.approx((1.1, 1.1 + 2 * 1.0))
    costs.add_overhead(1, 4, 0.3)
    at_best, at_worst = (costs.seconds(2, 4, 4, at_worst=w) for w in (False, True))
    assert (at_best, at_worst) == pytest.approx((1.3, 1.6))


def test_acceptance_is_the_sum_of_products_of_conditional_ones() -> None:
    acceptance = Acceptance(3)
    for num_accepted in [0] * 200 + [1] * 100 + [3] * 100:  # C = 1/2, 1/2, 1
        acceptance.record(3, 3, num_accepted)
    assert acceptance.num_accepted(1, at_worst=True) == pytest.approx(0.5, abs=0.01)
    assert acceptance.num_accepted(3, at_worst=True) == pytest.approx(0.5 + 0.25 + 0.25, abs=0.02)


def test_untried_positions_promise_as_much_as_the_one_before_and_at_worst_nothing() -> None:
    acceptance = Acceptance(3)
    for num_accepted in [0, 1] * 200:
        acceptance.record(1, 1, num_accepted)
    assert acceptance.num_accepted(3, at_worst=True) == pytest.approx(0.5, abs=0.01)
    assert acceptance.num_accepted(3, at_worst=False) == pytest.approx(0.5 + 0.25 + 0.125, abs=0.02)


def test_a_draft_that_was_not_found_counts_as_a_rejection_and_as_no_tokens() -> None:
    acceptance = Acceptance(2)
    for num_found in [0, 0, 0, 2] * 100:
        acceptance.record(2, num_found, num_found)
    assert acceptance.num_accepted(2, at_worst=True) == pytest.approx(0.5, abs=0.02)
    assert acceptance.num_drafted(2) == pytest.approx(0.5, abs=0.02)


def test_counts_fade_only_when_new_ones_came() -> None:
    acceptance = Acceptance(1)
    for _ in range(100):
        acceptance.record(1, 1, 0)
    for _ in range(50):
        acceptance.fade(0.5)
    assert acceptance._tries == [50.0]


def test_doubt_keeps_the_share_and_lets_news_decide() -> None:
    acceptance = Acceptance(1)
    for num_accepted in [0, 0, 0, 1] * 100:
        acceptance.record(1, 1, num_accepted)
    acceptance.doubt(4.0)
    assert (acceptance._tries, acceptance._hits) == ([4.0], [1.0])
