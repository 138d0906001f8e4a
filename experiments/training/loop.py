"""How does a training run go on, whatever is trained?

Warm-up, a constant rate, a short decay at the end; an average of the weights is what is evaluated and exported. Always
true: the batches are a function of the seed and the step, and a checkpoint holds everything, so that a run that was
interrupted goes on as if it had not been.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specinfer.errors import ConfigError

CHECKPOINT = "checkpoint.pt"
BEST = "best.pt"


@dataclass(kw_only=True)
class LoopSettings:
    """How long and how fast.

    learning_rate: of the matrices between hidden states (Muon). table_learning_rate: of tables, norms and biases
    (AdamW). num_steps: with the decay. num_decay_steps: of them, at the end; a run that is to go on later has 0.
    patience: evaluations without a better one before it ends, None for never. average: decay of the weights' moving
    average.
    """

    num_steps: int = 2000
    num_warmup_steps: int = 50
    num_decay_steps: int = 0
    learning_rate: float = 3e-3
    table_learning_rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float = 0.5
    average: float = 0.995
    eval_every: int = 200
    save_every: int = 100
    patience: int | None = None
    autocast: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.num_decay_steps <= self.num_steps:
            raise ConfigError(f"loop.num_decay_steps={self.num_decay_steps} is not in 0..{self.num_steps}")

    def rate(self, step: int) -> float:
        """The factor on the learning rate at `step`."""
        warm = min(1.0, (step + 1) / max(self.num_warmup_steps, 1))
        left = self.num_steps - step
        return warm * (min(1.0, left / (self.num_decay_steps + 1)) if self.num_decay_steps else 1.0)


def batch_numbers(num_texts: int, size: int, seed: int, step: int) -> list[int]:
    """The texts of a step: every text once an epoch, in an order of the epoch's own."""
    steps_an_epoch = max(num_texts // size, 1)
    order = np.random.default_rng((seed, step // steps_an_epoch)).permutation(num_texts)
    first = step % steps_an_epoch * size
    return [int(n) for n in order[first : first + size]]


class Training:
    """One module under training: its optimisers, its average and its place in the run."""

    def __init__(self, module: nn.Module, settings: LoopSettings, *, dense: Sequence[str] = ()) -> None:
        """dense: name prefixes of matrices that are trained as a table of rows (embeddings, heads), not as maps."""
        self.module = module
        self.settings = settings
        self.average = copy.deepcopy(module).requires_grad_(False)
        self.step = 0
        self.best: float | None = None
        self.num_worse = 0
        maps: list[Tensor] = []
        others: list[Tensor] = []
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                is_map = parameter.ndim == 2 and not name.startswith(tuple(dense) or ("\0",))
                (maps if is_map else others).append(parameter)
        self.optimizers: list[torch.optim.Optimizer] = []
        self.rates: list[float] = []
        decay = settings.weight_decay
        if maps:  # Jordan et al. 2024, scaled to the size of AdamW's updates
            muon = torch.optim.Muon(maps, lr=settings.learning_rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
            self.optimizers.append(muon)
            self.rates.append(settings.learning_rate)
        if others:
            rate = settings.table_learning_rate
            self.optimizers.append(torch.optim.AdamW(others, lr=rate, weight_decay=decay, betas=(0.9, 0.95)))
            self.rates.append(rate)

    def update(self, loss: Tensor) -> None:
        """One optimiser step."""
        factor = self.settings.rate(self.step)
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        weight = max(1 - self.settings.average, 1 / (self.step + 1))
        with torch.no_grad():
            for mean, value in zip(self.average.parameters(), self.module.parameters(), strict=True):
                mean.lerp_(value, weight)
        self.step += 1

    def save(self, folder: Path) -> None:
        """Write the checkpoint whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "module": self.module.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "best": self.best,
            "num_worse": self.num_worse,
        }
        torch.save(state, folder / f"{CHECKPOINT}.new")
        (folder / f"{CHECKPOINT}.new").replace(folder / CHECKPOINT)

    def resume(self, folder: Path) -> bool:
        """Go on from a checkpoint of this run; whether there was one."""
        if not (folder / CHECKPOINT).exists():
            return False
        state = torch.load(folder / CHECKPOINT, weights_only=True)
        self.module.load_state_dict(state["module"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
            for group in optimizer.param_groups:
                group["weight_decay"] = self.settings.weight_decay  # of this run, not of the one that is continued
        self.step, self.best, self.num_worse = state["step"], state["best"], state["num_worse"]
        return True

    def run(
        self,
        loss: Callable[[int], tuple[Tensor, Mapping[str, float]]],
        evaluate: Callable[[nn.Module], Mapping[str, float]],
        score: str,
        folder: Path,
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """Train to the end; yields (step, what was measured). `score` names the figure that should grow."""
        settings = self.settings
        device = next(self.module.parameters()).device.type
        started, since = time.perf_counter(), self.step
        while self.step < settings.num_steps:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=settings.autocast):
                value, measured = loss(self.step)
            self.update(value)
            figures = {"loss": float(value.detach()), **measured}
            figures["seconds_a_step"] = (time.perf_counter() - started) / (self.step - since)
            is_last = self.step == settings.num_steps
            if self.step % settings.eval_every == 0 or is_last:
                figures |= evaluate(self.average)
                self._judge(figures[score], folder)
            if self.step % settings.save_every == 0 or is_last:
                self.save(folder)
            yield self.step, figures
            if settings.patience is not None and self.num_worse >= settings.patience:
                return

    def _judge(self, value: float, folder: Path) -> None:
        """Keep the weights of the best evaluation."""
        if self.best is None or value > self.best:
            self.best, self.num_worse = value, 0
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(self.average.state_dict(), folder / BEST)
        else:
            self.num_worse += 1
