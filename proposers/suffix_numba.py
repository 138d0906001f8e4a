"""How often did each short piece of a text occur, and what followed it?

A trie of all pieces up to a depth, with counts, in flat arrays; compiled, so import it where it is first needed. Always
true: a live node's count is the number of occurrences of its piece, and a piece that no longer occurs has no node.

nodes: int32 [capacity, 6], columns below. table: int32 [slots], open addressing from (parent, token) to the child.
header: int64 [3]. active: int32 [depth + 1], active[m] the node of the last m tokens, active[0] the root. tokens and
texts: int64.
"""
# ruff: noqa: PLR0917  (compiled code takes its arrays one by one, and by position)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

PARENT, TOKEN, COUNT, FIRST_CHILD, NEXT, PREVIOUS = range(6)
NUM_COLUMNS = 6
NUM_USED, FREE, NUM_LIVE = range(3)
NIL = -1

_MIX_PARENT, _MIX_TOKEN, _LOW_32 = 0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F, 0xFFFFFFFF
_ROUNDING = 1e-6
_TRIE = "int32[:, ::1], int32[::1], int64[::1]"

Array = NDArray[Any]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _home(parent: int, token: int, num_slots: int) -> int:
    mixed = parent * _MIX_PARENT + token * _MIX_TOKEN
    mixed ^= mixed >> 32
    return ((mixed & _LOW_32) * num_slots) >> 32


@njit(cache=True)  # type: ignore[untyped-decorator]
def _slot(nodes: Array, table: Array, parent: int, token: int) -> int:
    """Where the child is, or the empty slot where it would be."""
    slot: int = _home(parent, token, table.shape[0])
    while table[slot] != NIL:
        node = table[slot]
        if nodes[node, PARENT] == parent and nodes[node, TOKEN] == token:
            break
        slot += 1
        if slot == table.shape[0]:
            slot = 0
    return slot


@njit(cache=True)  # type: ignore[untyped-decorator]
def _new(nodes: Array, header: Array, parent: int, token: int) -> int:
    node = header[FREE]
    if node != NIL:
        header[FREE] = nodes[node, NEXT]
    else:
        node = header[NUM_USED]
        header[NUM_USED] += 1
    header[NUM_LIVE] += 1
    nodes[node, PARENT], nodes[node, TOKEN], nodes[node, COUNT] = parent, token, 0
    nodes[node, FIRST_CHILD], nodes[node, NEXT], nodes[node, PREVIOUS] = NIL, NIL, NIL
    return int(node)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _add_child(nodes: Array, table: Array, header: Array, slot: int, parent: int, token: int) -> int:
    """The youngest child comes first."""
    node = _new(nodes, header, parent, token)
    table[slot] = node
    following = nodes[parent, FIRST_CHILD]
    nodes[node, NEXT] = following
    if following != NIL:
        nodes[following, PREVIOUS] = node
    nodes[parent, FIRST_CHILD] = node
    return int(node)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _clear_slot(nodes: Array, table: Array, hole: int) -> None:
    """Empty a slot and move back what was put behind it for want of room."""
    num_slots, probe = table.shape[0], hole
    while True:
        probe = probe + 1 if probe + 1 < num_slots else 0
        other = table[probe]
        if other == NIL:
            break
        home = _home(nodes[other, PARENT], nodes[other, TOKEN], num_slots)
        if (probe - home) % num_slots >= (probe - hole) % num_slots:
            table[hole] = other
            hole = probe
    table[hole] = NIL


@njit("void(" + _TRIE + ", int64)", cache=True)  # type: ignore[untyped-decorator]
def free_node(nodes: Array, table: Array, header: Array, node: int) -> None:
    """Forget a node without children; a root too, which is in no table."""
    parent, following, previous = nodes[node, PARENT], nodes[node, NEXT], nodes[node, PREVIOUS]
    if parent != NIL:
        if previous == NIL:
            nodes[parent, FIRST_CHILD] = following
        else:
            nodes[previous, NEXT] = following
        if following != NIL:
            nodes[following, PREVIOUS] = previous
        _clear_slot(nodes, table, _slot(nodes, table, parent, nodes[node, TOKEN]))
    nodes[node, COUNT], nodes[node, PARENT] = 0, NIL
    nodes[node, NEXT] = header[FREE]
    header[FREE] = node
    header[NUM_LIVE] -= 1


@njit("int64(int32[:, ::1], int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def new_root(nodes: Array, header: Array) -> int:
    """A node that is nobody's child."""
    return int(_new(nodes, header, NIL, NIL))


@njit("void(" + _TRIE + ")", cache=True)  # type: ignore[untyped-decorator]
def fill_table(nodes: Array, table: Array, header: Array) -> None:
    """Enter every child into a new, empty table."""
    for node in range(header[NUM_USED]):
        if nodes[node, PARENT] != NIL:
            table[_slot(nodes, table, nodes[node, PARENT], nodes[node, TOKEN])] = node


@njit("void(" + _TRIE + ", int32[::1], int64, int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def append(nodes: Array, table: Array, header: Array, active: Array, num_before: int, tokens: Array) -> None:
    """Count the pieces that end in the new tokens; there is room for depth nodes a token."""
    depth = active.shape[0] - 1
    for i in range(tokens.shape[0]):
        for m in range(min(num_before + i, depth - 1), -1, -1):
            slot = _slot(nodes, table, active[m], tokens[i])
            child = table[slot]
            if child == NIL:
                child = _add_child(nodes, table, header, slot, active[m], tokens[i])
            nodes[child, COUNT] += 1
            active[m + 1] = child


@njit("void(" + _TRIE + ", int32[::1], int64[::1], int64)", cache=True)  # type: ignore[untyped-decorator]
def retract(nodes: Array, table: Array, header: Array, active: Array, text: Array, num_kept: int) -> None:
    """Undo `append` of text[num_kept:]."""
    depth = active.shape[0] - 1
    for end in range(text.shape[0], num_kept, -1):
        for m in range(1, min(end, depth) + 1):
            node = active[m]
            active[m - 1] = nodes[node, PARENT]
            nodes[node, COUNT] -= 1
            if nodes[node, COUNT] == 0:
                free_node(nodes, table, header, node)
        if end > depth:
            node = active[0]
            for i in range(end - 1 - depth, end - 1):
                node = table[_slot(nodes, table, node, text[i])]
            active[depth] = node


@njit("void(" + _TRIE + ", int64, int64, int64[::1])", cache=True)  # type: ignore[untyped-decorator]
def remove(nodes: Array, table: Array, header: Array, root: int, depth: int, text: Array) -> None:
    """Forget one whole text, in any order of texts."""
    path = np.empty(depth, dtype=np.int64)
    for start in range(text.shape[0]):
        node, length = root, min(depth, text.shape[0] - start)
        for i in range(length):
            node = table[_slot(nodes, table, node, text[start + i])]
            nodes[node, COUNT] -= 1
            path[i] = node
        for i in range(length - 1, -1, -1):
            if nodes[path[i], COUNT] == 0:
                free_node(nodes, table, header, path[i])


@njit("int64(int32[:, ::1], int32[::1], int64, int64[::1], int32[::1])", cache=True)  # type: ignore[untyped-decorator]
def match(nodes: Array, table: Array, root: int, text: Array, active: Array) -> int:
    """How many last tokens of a text, less than the depth, occur as a piece; fills `active` up to there.

    What ends a piece that occurs, occurs too, so the first failure is the end.
    """
    active[0] = root
    for m in range(1, min(text.shape[0], active.shape[0] - 2) + 1):
        node = root
        for i in range(text.shape[0] - m, text.shape[0]):
            node = table[_slot(nodes, table, node, text[i])]
            if node == NIL:
                return m - 1
        active[m] = node
    return int(min(text.shape[0], active.shape[0] - 2))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _path(nodes: Array, node: int, limit: int, min_ratio: float, tokens: Array, parents: Array) -> tuple[int, float]:
    """Follow the highest count, of equal ones the youngest, while the cumulative ratio allows it."""
    total, num, score = nodes[node, COUNT], 0, 0.0
    while num < limit:
        child, best = nodes[node, FIRST_CHILD], NIL
        while child != NIL:
            if best == NIL or nodes[child, COUNT] > nodes[best, COUNT]:
                best = child
            child = nodes[child, NEXT]
        if best == NIL or nodes[best, COUNT] / total < min_ratio:
            break
        node = best
        tokens[num], parents[num] = nodes[node, TOKEN], num - 1
        score += nodes[node, COUNT] / total
        num += 1
    return num, score


@njit(cache=True)  # type: ignore[untyped-decorator]
def _tree(nodes: Array, node: int, limit: int, min_ratio: float, tokens: Array, parents: Array) -> tuple[int, float]:
    """The pieces of the highest cumulative ratios: best first, of equal ones the one that was found first.

    What is open has no ancestor among itself, so its ratios sum to at most 1 and it has at most 1 / min_ratio entries.
    """
    total, num, score = nodes[node, COUNT], 0, 0.0
    size = int(1 / min_ratio) + 2
    open_nodes, open_parents = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    num_open, parent = 0, NIL
    while num < limit:
        child = nodes[node, FIRST_CHILD]
        while child != NIL:
            if nodes[child, COUNT] / total >= min_ratio:
                open_nodes[num_open], open_parents[num_open] = child, parent
                num_open += 1
            child = nodes[child, NEXT]
        if num_open == 0:
            break
        best = 0
        for i in range(1, num_open):
            if nodes[open_nodes[i], COUNT] > nodes[open_nodes[best], COUNT]:
                best = i
        node, tokens[num], parents[num] = open_nodes[best], nodes[open_nodes[best], TOKEN], open_parents[best]
        num_open -= 1
        for i in range(best, num_open):
            open_nodes[i], open_parents[i] = open_nodes[i + 1], open_parents[i + 1]
        score += nodes[node, COUNT] / total
        parent = num
        num += 1
    return num, score


@njit(  # type: ignore[untyped-decorator]
    "Tuple((int64, float64))(int32[:, ::1], int32[::1], int64, float64, float64, float64, boolean, int64[::1], "
    "int64[::1])",
    cache=True,
)
def continue_best(
    nodes: Array,
    active: Array,
    num_matched: int,
    factor: float,
    offset: float,
    min_ratio: float,
    is_tree: bool,
    tokens: Array,
    parents: Array,
) -> tuple[int, float]:
    """Number of tokens and score of the best continuation of any matched piece, written to `tokens` and `parents`.

    Longest piece first; a shorter one must score more. SuffixDecoding (Oliaro et al. 2024), section 3.
    """
    room, best_num, best_score = tokens.shape[0], 0, 0.0
    some_tokens, some_parents = np.empty_like(tokens), np.empty_like(parents)
    for m in range(num_matched, 0, -1):
        limit = min(room, int(max(factor * m + offset + _ROUNDING, 0.0)))
        if limit <= best_score:  # no ratio is above 1
            continue
        if is_tree:
            num, score = _tree(nodes, active[m], limit, min_ratio, some_tokens, some_parents)
        else:
            num, score = _path(nodes, active[m], limit, min_ratio, some_tokens, some_parents)
        if score > best_score:
            best_num, best_score = num, score
            tokens[:num], parents[:num] = some_tokens[:num], some_parents[:num]
    return best_num, best_score
