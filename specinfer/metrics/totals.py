"""What does each request add up to?

Every figure of speculation is a ratio of two of these sums, so that pooling, averaging over requests and resampling
them need nothing else. Always true: `emitted` is the request's output tokens, exactly.

Notation: a decode step is a step of a request whose row held no prefill; a drafted step is one that verified at least
one draft token. A draft token counts as `accepted` where it reached the output, as `accepted_uncut` where the verifier
accepted it, a stop before it or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

REQUEST_KEYS = ("method", "repeat", "task", "question_id", "turn", "request_id")
STEP_KEYS = ("method", "step")
TIMES = ("draft_s", "forward_s", "grammar_s", "verify_s", "other_s")


def _present(table: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    return [key for key in keys if key in table.columns]


def with_counts(events: pl.DataFrame) -> pl.DataFrame:
    """The events with their counts as columns, one row an event.

    `tested` draft tokens are those of a chain that the verifier drew for: the accepted ones and the first rejected one;
    a tree counts none. `overlap` sums min(1, p/q) over them.
    """
    drafted = pl.col("draft_token_ids").list.len().cast(pl.Int64)
    decode = ~pl.col("is_prefill")
    accepted = pl.col("num_accepted")
    table = events.with_columns(
        decode_steps=decode.cast(pl.Int64),
        drafted_steps=(decode & (drafted > 0)).cast(pl.Int64),
        drafted=pl.when(decode).then(drafted).otherwise(0),
        accepted=pl.when(decode).then(pl.min_horizontal(accepted, "num_emitted")).otherwise(0),
        accepted_uncut=pl.when(decode).then(accepted).otherwise(0),
        emitted=pl.col("num_emitted"),
        emitted_decode=pl.when(decode).then(pl.col("num_emitted")).otherwise(0),
        distance=pl.when(decode).then(pl.col("distance")).otherwise(0.0),
        depth=pl.when(decode).then(pl.col("draft_depth")).otherwise(0),
        tested=pl.when(decode & (pl.col("draft_parents").list.len() == 0))
        .then(pl.min_horizontal(accepted + 1, drafted))
        .otherwise(0),
    )
    ratios = (pl.col("draft_p") / pl.col("draft_q")).list.eval(pl.element().clip(0.0, 1.0))
    return table.with_columns(overlap=ratios.list.head(pl.col("tested")).list.sum())


COUNTS = (
    "decode_steps",
    "drafted_steps",
    "drafted",
    "accepted",
    "accepted_uncut",
    "emitted",
    "emitted_decode",
    "tested",
    "overlap",
    "distance",
)


def by_request(events: pl.DataFrame) -> pl.DataFrame:
    """One row a request, in order of first appearance: its labels and the sums of every count."""
    keys = _present(events, REQUEST_KEYS)
    return with_counts(events).group_by(keys, maintain_order=True).agg(pl.col(COUNTS).sum())


def shared_seconds(events: pl.DataFrame) -> pl.DataFrame:
    """One row a request: `seconds`, its part of the steps it was in.

    A step's time (all four parts) is shared equally among the requests of the step, whatever their tokens.
    """
    keys = _present(events, REQUEST_KEYS)
    share = pl.sum_horizontal(TIMES) / pl.col("batch_size")
    return events.group_by(keys, maintain_order=True).agg(seconds=share.sum())


def time_split(events: pl.DataFrame) -> dict[str, float]:
    """Seconds by part of the step (the names of TIMES), each step counted once, prefill included.

    A step whose requests are partly left out of `events` counts with its whole time.
    """
    steps = events.unique(subset=_present(events, STEP_KEYS))
    return {name: float(steps[name].sum()) for name in TIMES}
