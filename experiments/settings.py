"""How is a comparison run, apart from what it compares?

Always true: a number out of its range is refused before a model is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from specinfer.errors import ConfigError


@dataclass(kw_only=True)
class RunSettings:
    """The node `run` of the configuration.

    name: part of the folder's name. group: what related runs share in a tracker. batch_size: requests sent together;
    requests of different tasks are never together. repeats: times each request is measured by each method.
    num_warmup: batches each method runs first, unmeasured. chat: put the turns in the model's chat template; false
    for a model without one.
    """

    name: str = "run"
    group: str = "default"
    batch_size: int = 1
    repeats: int = 1
    num_warmup: int = 1
    chat: bool = True

    def __post_init__(self) -> None:
        for name, low in (("batch_size", 1), ("repeats", 1), ("num_warmup", 0)):
            if getattr(self, name) < low:
                raise ConfigError(f"run.{name} must be at least {low}, got {getattr(self, name)}")
        if not self.name or any(c in self.name for c in "/\\\0"):
            raise ConfigError(f"run.name is part of a folder's name, got {self.name!r}")
