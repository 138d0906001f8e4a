import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proposers.suffix import SuffixProposer
from specinfer import LLM, SamplingParams
from specinfer.errors import ConfigError
from specinfer.testing import check, greedy_continuation, tiny_loaded_model


def bound(**config: Any) -> SuffixProposer:
    proposer = SuffixProposer(**config)
    proposer.bind(None)  # type: ignore[arg-type]
    return proposer


def request(text: Sequence[int], name: str = "a", salt: str = "", num_prompt_tokens: int = 0) -> Any:
    token_ids = np.array(text, dtype=np.int64)
    return SimpleNamespace(request_id=name, token_ids=token_ids, num_prompt_tokens=num_prompt_tokens, cache_salt=salt)


def draft(proposer: SuffixProposer, text: Sequence[int], length: int = 16, name: str = "a", salt: str = "") -> Any:
    return proposer.propose([request(text, name, salt)], [length])[0]


def drafted(*arguments: Any, **named: Any) -> list[int]:
    found = draft(*arguments, **named)
    return [] if found is None else list(found.token_ids)


def finish(proposer: SuffixProposer, text: Sequence[int], name: str = "old", salt: str = "") -> None:
    proposer.start(request(text, name, salt))
    proposer.stop(name)


class Counts:
    """The definition: every piece of every text up to a depth, how often it occurs and since when."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.seen: dict[tuple[int, ...], list[int]] = {}
        self.clock = 0

    def add(self, text: Sequence[int]) -> None:
        for end in range(1, len(text) + 1):
            self.clock += 1
            for start in range(max(end - self.depth, 0), end):
                entry = self.seen.setdefault(tuple(text[start:end]), [0, self.clock])
                entry[0] += 1

    def remove(self, text: Sequence[int]) -> None:
        for end in range(1, len(text) + 1):
            for start in range(max(end - self.depth, 0), end):
                piece = tuple(text[start:end])
                self.seen[piece][0] -= 1
                if not self.seen[piece][0]:
                    del self.seen[piece]

    def children(self, piece: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The youngest first."""
        found = [p for p in self.seen if len(p) == len(piece) + 1 and p[:-1] == piece]
        return sorted(found, key=lambda p: -self.seen[p][1])

    def path(self, piece: tuple[int, ...], limit: int, min_ratio: float) -> tuple[float, list[int], list[int]]:
        total, found, score = self.seen[piece][0], list[int](), 0.0
        while len(found) < limit:
            children = self.children(piece)
            if not children:
                break
            piece = max(children, key=lambda p: self.seen[p][0])
            ratio = self.seen[piece][0] / total
            if ratio < min_ratio:
                break
            score += ratio
            found.append(piece[-1])
        return score, found, list(range(-1, len(found) - 1))

    def tree(self, piece: tuple[int, ...], limit: int, min_ratio: float) -> tuple[float, list[int], list[int]]:
        total, found, parents, score = self.seen[piece][0], list[int](), list[int](), 0.0
        waiting = [(child, -1) for child in self.children(piece)]
        while len(found) < limit and waiting:
            best = max(waiting, key=lambda item: self.seen[item[0]][0])
            ratio = self.seen[best[0]][0] / total
            if ratio < min_ratio:
                break
            waiting.remove(best)
            score += ratio
            found.append(best[0][-1])
            parents.append(best[1])
            waiting += [(child, len(found) - 1) for child in self.children(best[0])]
        return score, found, parents

    def best(self, text: Sequence[int], length: int, config: dict[str, Any]) -> tuple[float, list[int], list[int]]:
        best: tuple[float, list[int], list[int]] = (0.0, [], [])
        for m in range(min(len(text), self.depth - 1), 0, -1):
            piece = tuple(text[len(text) - m :])
            if piece in self.seen:
                limit = min(length, int(config["factor"] * m + config["offset"] + 1e-6))
                found = (self.tree if config["is_tree"] else self.path)(piece, limit, config["min_ratio"])
                best = found if found[0] > best[0] else best
        return best


REACHES = st.fixed_dictionaries(
    {
        "max_depth": st.integers(2, 6),
        "factor": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "offset": st.sampled_from([-1.0, 0.0, 1.5]),
        "min_ratio": st.sampled_from([0.05, 0.1, 0.34, 0.5, 1.0]),
        "is_tree": st.booleans(),
    }
)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=24)


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 6), REACHES)
def test_the_draft_is_that_of_the_definition_however_the_text_came_about(texts: Any, length: int, config: Any) -> None:
    proposer = bound(**config)
    for text in texts:  # mostly not the beginning of one another: what differs is taken back
        for end in (len(text) // 2, len(text)):
            counts = Counts(config["max_depth"])
            counts.add(text[:end])
            _, tokens, parents = counts.best(text[:end], length, config)
            found = draft(proposer, text[:end], length)
            assert (list(found.token_ids) if found else []) == tokens
            if found and config["is_tree"]:
                assert found.parents == parents
        assert proposer._texts["a"].trie.num_nodes == 1 + len(counts.seen)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "b"]), TEXTS), max_size=12), TEXTS, st.integers(1, 6), REACHES)
def test_finished_outputs_count_per_salt_within_the_bytes(outputs: Any, text: Any, length: int, config: Any) -> None:
    from proposers.suffix_trie import FinishedOutputs, Reach

    store = FinishedOutputs(config["max_depth"], max_bytes=4000)
    counts = {salt: Counts(config["max_depth"]) for salt in ("", "b")}
    kept: list[tuple[str, list[int]]] = []
    for salt, output in outputs:
        store.add(salt, np.array(output))
        assert store.nbytes <= 4000
        while len(kept) + 1 > store.num_outputs:
            old_salt, old = kept.pop(0)
            counts[old_salt].remove(old)
        stored = store._outputs[-1][1].tolist()
        assert stored == output[len(output) - len(stored) :]
        counts[salt].add(stored)
        kept.append((salt, stored))
    reach = Reach(**{name: config[name] for name in ("factor", "offset", "min_ratio", "is_tree")})
    for salt, expected in counts.items():
        found = store.continuation(salt, np.array(text), length, reach)
        assert (found.score, found.token_ids, found.parents) == expected.best(text, length, config)
    num_salts = len({salt for salt, _ in kept})
    assert store.trie.num_nodes == num_salts + sum(len(c.seen) for c in counts.values())


def test_the_highest_count_is_followed_while_the_cumulative_ratio_is_at_least_the_minimum() -> None:
    # Behind 1: 2 in three of the five, counting the last 1 itself; behind 1 2: 3 in two of these, 4 in one.
    text = [1, 2, 3, 7, 1, 2, 4, 8, 1, 2, 3, 9, 1, 5, 6, 1]
    assert drafted(bound(factor=4.0, min_ratio=0.6), text) == [2]
    assert drafted(bound(factor=4.0, min_ratio=0.4), text) == [2, 3]
    assert drafted(bound(factor=4.0, min_ratio=0.2), text) == [2, 3, 9, 1]  # of 7 and 9 the younger


def test_a_longer_match_may_be_continued_further() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
    assert drafted(bound(), text) == [4, 5, 6]
    assert drafted(bound(factor=0.0, offset=2.0), text) == [4, 5]
    assert drafted(bound(factor=2.0, offset=-1.0), text) == [4, 5, 6, 7, 8]
    assert drafted(bound(max_depth=5), text) == [4, 5]
    assert drafted(bound(), text, length=1) == [4]


def test_the_best_score_wins_over_the_longest_match() -> None:
    # 9 1 occurred once before (5 follows: score 1/2), 1 alone six times (2 follows in four: score 4/6).
    text = [1, 2, 1, 2, 1, 2, 1, 2, 9, 1, 5, 9, 1]
    assert drafted(bound(offset=0.0, factor=0.5), text) == [5]  # m = 1 may not draft
    assert drafted(bound(offset=1.0, factor=0.0), text) == [2]


def test_a_tree_holds_the_continuations_of_the_highest_ratios() -> None:
    text = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 5, 6, 1]
    found = draft(bound(is_tree=True, factor=0.0, offset=4.0, max_depth=3), text)
    assert (found.token_ids, found.parents, found.probs) == ([2, 3, 5, 4], [-1, 0, -1, 0], None)


def test_outputs_that_finished_are_matched_and_the_own_text_wins_ties() -> None:
    proposer = bound()
    finish(proposer, [1, 2, 3, 4])
    assert drafted(proposer, [9, 1, 2]) == [3, 4]
    finish(proposer, [1, 2, 3, 4, 1, 2, 5])
    # Own: behind 7 the token 8 in one of two; outputs: 7 is unknown.
    assert drafted(proposer, [7, 8, 7]) == [8]
    tie = bound()
    finish(tie, [7, 9, 7])
    assert drafted(tie, [7, 8, 7]) == [8]  # 1/2 in both


def test_only_the_output_of_a_finished_request_is_kept_to_its_last_token() -> None:
    proposer = bound()
    seen = request([1, 2, 3, 4], num_prompt_tokens=2)
    proposer.start(seen)
    proposer.propose([seen], [4])
    seen.token_ids = np.array([1, 2, 3, 4, 5])
    proposer.stop("a")
    assert drafted(proposer, [1], name="b") == []
    assert drafted(proposer, [3, 4], name="c") == [5]


def test_two_salts_never_share() -> None:
    proposer, alone = bound(), bound()
    finish(proposer, [1, 2, 3, 4], salt="theirs")
    for salt in ("ours", ""):
        assert drafted(proposer, [9, 1, 2], salt=salt) == []
    for each in (proposer, alone):
        finish(each, [1, 2, 7, 7], salt="ours")
    assert drafted(proposer, [9, 1, 2], salt="ours") == drafted(alone, [9, 1, 2], salt="ours") == [7, 7]
    assert drafted(proposer, [9, 1, 2], salt="theirs", name="t") == [3, 4]


def test_memory_stays_within_its_bytes_and_the_oldest_go_first() -> None:
    proposer = bound(max_bytes=200_000)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 1000, 40).tolist() for _ in range(60)]
    for text in texts:
        finish(proposer, text)
        assert proposer._outputs.nbytes <= 200_000
    assert 0 < proposer._outputs.num_outputs < 60
    assert drafted(proposer, texts[0][:10], name="first") == []
    assert drafted(proposer, texts[-1][:10], name="last") == texts[-1][10:20]


@pytest.mark.parametrize("max_bytes", [0, 10, 500, 2000])
def test_an_output_without_room_is_cut_or_left_out(max_bytes: int) -> None:
    proposer = bound(max_bytes=max_bytes, max_depth=4)
    for _ in range(5):
        finish(proposer, list(range(100)))
        assert proposer._outputs.nbytes <= max(max_bytes, 4)


def test_bind_begins_anew() -> None:
    proposer = bound()
    finish(proposer, [1, 2, 3, 4])
    proposer.bind(None)  # type: ignore[arg-type]
    assert drafted(proposer, [1, 2]) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens"),
        ({"max_depth": 1}, "max_depth"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"factor": -1.0}, "factor"),
        ({"factor": "much"}, "factor"),
        ({"min_ratio": 0.0}, "min_ratio"),
        ({"min_ratio": 1.1}, "min_ratio"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SuffixProposer(**config)


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_step_at_2000_tokens_costs_under_a_millisecond(is_tree: bool) -> None:
    rng = np.random.default_rng(0)
    text = np.minimum(rng.zipf(1.3, 2100), 40_000).astype(np.int64)
    proposer = bound(is_tree=is_tree)
    for number in range(10):
        finish(proposer, np.minimum(rng.zipf(1.3, 500), 40_000).tolist(), name=str(number))
    times = []
    for end in range(2000, 2100):
        start = time.perf_counter()
        draft(proposer, text[:end])
        times.append(time.perf_counter() - start)
    assert sorted(times)[50] < 1e-3


@pytest.mark.parametrize("is_tree", [False, True])
def test_it_keeps_the_protocol_and_the_law(is_tree: bool) -> None:
    check("proposers", lambda: SuffixProposer(num_draft_tokens=4, is_tree=is_tree))


@pytest.mark.parametrize("is_tree", [False, True])
def test_greedy_tokens_equal_plain_decoding_and_the_second_run_accepts_more(is_tree: bool) -> None:
    loaded = tiny_loaded_model(vocab_size=8, order=3, max_model_len=128)
    llm = LLM(loaded_model=loaded, proposer=SuffixProposer(is_tree=is_tree))
    prompt, accepted = [1, 2, 3], []
    for _ in range(2):
        output = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=60))[0]
        assert output.outputs[0].token_ids == greedy_continuation(loaded.model, prompt, 60)  # type: ignore[arg-type]
        assert output.draft_error is None
        accepted.append(output.stats.num_accepted_tokens)
    assert 0 < accepted[0] < accepted[1]
