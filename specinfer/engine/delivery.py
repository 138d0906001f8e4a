"""Who gets a request's outputs?

Always true: every output goes to exactly one reader, in the order of the steps: the stream that its request was added
by, else whoever calls for the unclaimed ones; readers may take turns, since each advances the engine for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from specinfer.engine.engine import Engine
from specinfer.types import RequestOutput


class Delivery:
    """Runs an engine's steps and sorts their outputs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.unclaimed: list[RequestOutput] = []
        self._inboxes: dict[str, deque[RequestOutput]] = {}

    def advance(self) -> None:
        """Run one step; its outputs wait for their readers."""
        for output in self.engine.step():
            inbox = self._inboxes.get(output.request_id)
            if inbox is None:
                self.unclaimed.append(output)
            else:
                inbox.append(output)
            if output.finished:
                self._inboxes.pop(output.request_id, None)

    def take_unclaimed(self) -> list[RequestOutput]:
        """The outputs that no stream reads, once."""
        taken, self.unclaimed = self.unclaimed, []
        return taken

    def claim(self, request_ids: Iterable[str], inbox: deque[RequestOutput]) -> None:
        """Send the outputs of requests in flight to `inbox`."""
        self._inboxes.update(dict.fromkeys(request_ids, inbox))

    def drop(self, request_id: str) -> None:
        """Abort a request that nobody reads any more."""
        if self._inboxes.pop(request_id, None) is not None:
            self.engine.abort(request_id)


class OutputStream(Iterator[RequestOutput]):
    """The outputs of some requests as they come.

    Whatever ends it early (`close`, an exception, the last reference to it gone) aborts its unfinished requests. It
    ends by itself when none of them is in flight any more, finished or aborted.
    """

    def __init__(self, delivery: Delivery, request_ids: Iterable[str]) -> None:
        self._delivery = delivery
        self._request_ids = set(request_ids)
        self._inbox: deque[RequestOutput] = deque()
        delivery.claim(self._request_ids, self._inbox)

    def __next__(self) -> RequestOutput:
        try:
            while not self._inbox:
                if self._request_ids.isdisjoint(self._delivery.engine.in_flight):
                    raise StopIteration
                self._delivery.advance()
        except BaseException:
            self.close()
            raise
        return self._inbox.popleft()

    def close(self) -> None:
        """Abort what is unfinished; nothing more comes."""
        for request_id in self._request_ids:
            self._delivery.drop(request_id)
        self._request_ids.clear()
        self._inbox.clear()

    def __del__(self) -> None:
        self.close()
