"""What comes next, if the output follows the text that its user predicted?

Predicted outputs: `SamplingParams.prediction` is read along with the output, as for an edit of a file. Always true: a
draft is a function of the prediction and the request's tokens, with a one-hot q; without a prediction there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specinfer.errors import ConfigError, RequestError, check_count
from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft

Tokens = NDArray[np.int64]


class Reading:
    """One output beside its prediction: where the cursor was after each output token."""

    def __init__(self, prediction: Sequence[int], min_lookup: int, max_lookup: int) -> None:
        self.prediction: Tokens = np.array(prediction, dtype=np.int64)
        self.min_lookup = min_lookup
        self.max_lookup = max_lookup
        self.output: list[int] = []
        self.cursors = [0]
        self.is_on_track = [True]
        """False where no place in the prediction looks like the output's end"""

    def follow(self, output: list[int]) -> None:
        """Make this the output, whatever was before."""
        num_kept = min(len(self.output), len(output))
        if self.output[:num_kept] != output[:num_kept]:
            num_kept = next(i for i in range(num_kept) if self.output[i] != output[i])
        del self.output[num_kept:], self.cursors[num_kept + 1 :], self.is_on_track[num_kept + 1 :]
        for token in output[num_kept:]:
            self._read(token)

    def ahead(self, length: int) -> list[int]:
        """The prediction from the cursor on; nothing while the output is somewhere else."""
        if not self.is_on_track[-1]:
            return []
        following: list[int] = self.prediction[self.cursors[-1] : self.cursors[-1] + length].tolist()
        return following

    def _read(self, token: int) -> None:
        cursor = self.cursors[-1]
        self.output.append(token)
        if cursor < len(self.prediction) and self.prediction[cursor] == token:
            place: int | None = cursor + 1
        else:
            place = self._place(cursor)
        self.cursors.append(cursor if place is None else place)
        self.is_on_track.append(place is not None)

    def _place(self, cursor: int) -> int | None:
        """Behind the longest n-gram of the output's end, the one nearest to the cursor; of two as near, the later."""
        ends = np.flatnonzero(self.prediction == self.output[-1]) + 1
        found = None
        for size in range(1, min(self.max_lookup, len(self.output)) + 1):
            if size > 1:
                ends = ends[ends >= size]
                ends = ends[self.prediction[ends - size] == self.output[-size]]
            if not len(ends):
                break
            if size >= self.min_lookup:
                distances = np.abs(ends - cursor)
                found = int(ends[distances == distances.min()][-1])
        return found


@dataclass
class PromptAheadProposer:
    """Drafts the prediction from a cursor on.

    The cursor moves with every token that the output has in common with it. At a divergence it goes to where the last
    `max_lookup` to `min_lookup` emitted tokens stand in the prediction; where they do not, it waits there without a
    draft until the output comes back.
    """

    num_draft_tokens: int = 8
    min_lookup: int = 1
    max_lookup: int = 4

    _context: ProposerContext = field(init=False, repr=False, compare=False)
    _readings: dict[str, Reading] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for lengths that cannot work."""
        for name, low in (("num_draft_tokens", 0), ("min_lookup", 1), ("max_lookup", 1)):
            check_count(f"prompt_ahead.{name}", getattr(self, name), low)
        if self.max_lookup < self.min_lookup:
            raise ConfigError(
                f"prompt_ahead.max_lookup={self.max_lookup} is less than min_lookup={self.min_lookup}: "
                f"raise the one or lower the other"
            )

    def bind(self, context: ProposerContext) -> None:
        """Get the tokenizer for predictions in text."""
        self._context, self._readings = context, {}

    def start(self, request: RequestView) -> None:
        """Tokenise the prediction; RequestError where its ids are none of the vocabulary's."""
        prediction = request.params.prediction
        if prediction is None:
            return
        ids = self._context.tokenizer.encode_plain(prediction) if isinstance(prediction, str) else list(prediction)
        last = self._context.vocab_size - 1
        wrong = [token for token in ids if not 0 <= token <= last]
        if wrong:
            raise RequestError(f"prediction has the token id {wrong[0]}, outside the vocabulary 0..{last}")
        self._readings[request.request_id] = Reading(ids, self.min_lookup, self.max_lookup)

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return [self._draft(request, length) for request, length in zip(requests, num_draft_tokens, strict=True)]

    def stop(self, request_id: str) -> None:
        self._readings.pop(request_id, None)

    def _draft(self, request: RequestView, length: int) -> Draft | None:
        reading = self._readings.get(request.request_id)
        if reading is None:
            return None
        reading.follow(request.token_ids[request.num_prompt_tokens :].tolist())
        ahead = reading.ahead(length)
        return Draft(ahead) if ahead else None
