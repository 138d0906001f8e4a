"""Which compiled grammars are kept?

Always true: they hold at most `max_bytes`, by what each said when it was last used.
"""

from __future__ import annotations

from collections import OrderedDict

from specinfer.protocols import CompiledGrammar


class GrammarCache:
    """Grammars by address, the least recently used ones dropped beyond `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._kept: OrderedDict[str, tuple[CompiledGrammar, int]] = OrderedDict()

    def get(self, address: str) -> CompiledGrammar | None:
        if address not in self._kept:
            return None
        grammar, _ = self._kept[address]
        self.put(address, grammar)
        return grammar

    def put(self, address: str, grammar: CompiledGrammar) -> None:
        """Keep one as the latest; its size is asked for anew, as it grows with use."""
        self.num_bytes -= self._kept.pop(address, (grammar, 0))[1]
        size = grammar.num_bytes
        self._kept[address] = grammar, size
        self.num_bytes += size
        while self.num_bytes > self.max_bytes:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.num_bytes -= dropped
