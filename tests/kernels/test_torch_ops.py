"""Batched paged attention equals the formula, token by token."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from specinfer.kernels.metadata import ForwardBatch
from specinfer.kernels.rows import tree_mask
from specinfer.kernels.torch_ops import arrange, paged_attention, write_kv

NUM_HEADS, DIM, VALUE_DIM = 4, 8, 6
ROWS: dict[str, list[tuple[int, int]]] = {
    "one decode": [(1, 17)],
    "decodes of equal length": [(1, 9), (1, 9), (1, 9)],
    "decodes": [(1, 3), (1, 30), (1, 17), (1, 1)],
    "draft windows": [(5, 20), (2, 19), (1, 25), (6, 6)],
    "one window": [(4, 12)],
    "prefill": [(40, 40)],
    "chunk behind a context": [(35, 50)],
    "mixed": [(40, 41), (1, 7), (5, 33), (3, 3), (33, 64)],
}


def _case(rows: list[tuple[int, int]], num_kv_heads: int, block_size: int, *, contiguous: bool) -> Any:
    """A batch over shuffled blocks, its cache filled with the context, and q, k, v of its tokens."""
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    counts = [-(-context // block_size) for _, context in rows]
    order = list(range(1, sum(counts) + 1))
    if not contiguous:
        order = [order[i] for i in torch.randperm(len(order), generator=generator).tolist()]
    tables = [order[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(len(rows))]
    slots = [
        [table[p // block_size] * block_size + p % block_size for p in range(context)]
        for table, (_, context) in zip(tables, rows, strict=True)
    ]
    num_slots = (sum(counts) + 1) * block_size
    k_cache, v_cache = noise(num_slots, num_kv_heads, DIM), noise(num_slots, num_kv_heads, VALUE_DIM)
    new_slots = [slot for row, (query, _) in zip(slots, rows, strict=True) for slot in row[-query:]]
    num_tokens = len(new_slots)
    batch = ForwardBatch(
        token_ids=torch.zeros(num_tokens, dtype=torch.long),
        positions=torch.tensor([p for query, context in rows for p in range(context - query, context)]),
        slot_mapping=torch.tensor(new_slots),
        logits_rows=torch.arange(num_tokens),
        query_lens=[query for query, _ in rows],
        context_lens=[context for _, context in rows],
        block_tables=tables,
        block_size=block_size,
    )
    k, v = noise(num_tokens, num_kv_heads, DIM), noise(num_tokens, num_kv_heads, VALUE_DIM)
    return batch, k_cache, v_cache, noise(num_tokens, NUM_HEADS, DIM), k, v, slots


def _formula(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Tensor:
    """One query [heads, dim] over its visible keys [context, kv_heads, dim]."""
    num_groups = q.shape[0] // k.shape[1]
    window = options.get("sliding_window")
    k, v = (k[-window:], v[-window:]) if window else (k, v)
    outputs = []
    for head in range(q.shape[0]):
        scores = k[:, head // num_groups] @ q[head] * options["scale"]
        if options.get("softcap"):
            scores = options["softcap"] * torch.tanh(scores / options["softcap"])
        weights = torch.exp(scores)
        total = weights.sum() + (math.exp(options["sinks"][head]) if "sinks" in options else 0.0)
        outputs.append((weights[:, None] * v[:, head // num_groups]).sum(0) / total)
    return torch.stack(outputs)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"sliding_window": 5},
    "softcap": {"softcap": 2.0},
    "sinks and window": {"sinks": torch.tensor([0.3, -1.0, 0.0, 2.0]), "sliding_window": 7},
}


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ROWS)
def test_it_equals_the_formula(name: str, option: str, num_kv_heads: int, block_size: int, contiguous: bool) -> None:
    rows, options = ROWS[name], {"scale": 0.4, **OPTIONS[option]}
    batch, k_cache, v_cache, q, k, v, slots = _case(rows, num_kv_heads, block_size, contiguous=contiguous)
    write_kv(k_cache, v_cache, k, v, batch.slot_mapping)
    found = paged_attention(q, k_cache, v_cache, batch, **options)
    token = 0
    for (query, context), row_slots in zip(rows, slots, strict=True):
        for position in range(context - query, context):
            visible = row_slots[: position + 1]
            expected = _formula(q[token], k_cache[visible], v_cache[visible], options)
            torch.testing.assert_close(found[token], expected, rtol=0, atol=1e-12)
            token += 1


def test_rows_of_like_shape_share_a_call_and_padding_at_most_doubles_a_context() -> None:
    batch, *_ = _case([(1, 20), (3, 31), (1, 17), (1, 60), (40, 40)], 2, 4, contiguous=False)
    groups = arrange(batch)
    assert [len(group.token_index) for group in groups] == [3, 1, 1]
    for group in groups[:1]:
        assert group.context_len < 2 * 17


def test_a_contiguous_table_is_read_without_a_copy() -> None:
    batch, k_cache, *_ = _case([(1, 20)], 2, 4, contiguous=True)
    assert arrange(batch)[0].read(k_cache).untyped_storage().data_ptr() == k_cache.untyped_storage().data_ptr()


def test_padding_reads_nothing_of_another_request() -> None:
    """A NaN anywhere outside the rows' own contexts reaches no output."""
    batch, k_cache, v_cache, q, k, v, slots = _case([(1, 20), (1, 30), (3, 17)], 2, 4, contiguous=False)
    own = torch.zeros(len(k_cache), dtype=torch.bool)
    own[[slot for row in slots for slot in row]] = True
    k_cache[~own], v_cache[~own] = torch.nan, torch.nan
    write_kv(k_cache, v_cache, k, v, batch.slot_mapping)
    assert bool(torch.isfinite(paged_attention(q, k_cache, v_cache, batch, scale=0.4)).all())


TREES = {
    "alone": [([-1, 0, 0, 1, 2, 2], 11)],
    "beside chains": [([-1, 0, 0, 1], 9), (None, 14), ([-1, 0, 1, 1, 1, 4, 0], 30), (None, 1)],
    "a late level of a tree": [([-1, 0, 0, 1, 2, 2], 17)],
}


@pytest.mark.parametrize("num_kv_heads", [1, 4])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", TREES)
def test_a_branching_row_sees_its_ancestors_alone(name: str, option: str, num_kv_heads: int) -> None:
    """parents: of the row's tokens among themselves; a late level asks for the last two nodes only."""
    cases, options = TREES[name], {"scale": 0.4, **OPTIONS[option]}
    num_queries = [2 if "late" in name else 1 if parents is None else len(parents) for parents, _ in cases]
    rows = [(query, context) for query, (_, context) in zip(num_queries, cases, strict=True)]
    batch, k_cache, v_cache, q, k, v, slots = _case(rows, num_kv_heads, 4, contiguous=False)
    positions: list[int] = []
    for (parents, context), query in zip(cases, num_queries, strict=True):
        if parents is None:
            batch.trees.append(None)
            positions += range(context - query, context)
            continue
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        places = [context - len(parents) + depth for depth in depths]
        batch.trees.append(tree_mask(parents, places, query, torch.device("cpu")))
        positions += places[-query:]
    batch.positions = torch.tensor(positions)
    write_kv(k_cache, v_cache, k, v, batch.slot_mapping)
    found = paged_attention(q, k_cache, v_cache, batch, **options)
    token = 0
    for (parents, context), query, row_slots in zip(cases, num_queries, slots, strict=True):
        for place in range(query):
            if parents is None:
                visible = row_slots[: context - query + place + 1]
            else:
                node, path = len(parents) - query + place, []
                while node >= 0:
                    path.append(row_slots[context - len(parents) + node])
                    node = parents[node]
                visible = [*row_slots[: context - len(parents)], *reversed(path)]
            expected = _formula(q[token], k_cache[visible], v_cache[visible], options)
            torch.testing.assert_close(found[token], expected, rtol=0, atol=1e-12)
            token += 1
