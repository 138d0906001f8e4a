"""What must be said of a trained drafter, so that its figures can be trusted and repeated?

Always true: every number on a card comes from the run's own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.training.data import TrainingData
from experiments.training.eagle import Acceptance
from experiments.training.recipes import Recipe
from specinfer import registry

_CARD = """# {name} for {target}

A drafter in its public layout, trained on the target's own responses.

- data: {num_train} conversations ({num_tokens} response tokens), {num_greedy} of them greedy; {num_held_out} \
more held out
- steps: {num_steps}
- recipe: `{recipe}`
- command: `{command}` (run it again with more steps to go on)
- size: {size_mb:.1f} MB

Held-out greedy responses, a chain of {num_eval} tokens: acceptance length over all decode steps {length:.3f}; \
conditional acceptance by position {conditional}. The engine on the same prompts: {served_length:.3f}; {served}.

![learning curve](learning_curve.png)
"""


def write_card(
    path: Path,
    recipe: Recipe,
    data: TrainingData,
    *,
    rows: Sequence[Mapping[str, float]],
    figures: Mapping[str, float],
    served: Acceptance,
    command: str,
) -> None:
    """Write the card beside the weights."""
    conditional = [value for name, value in figures.items() if name.startswith("conditional_")]
    described: Any = registry.describe(recipe)
    path.write_text(
        _CARD.format(
            name=recipe.name,
            target=data.loaded.model.name,
            num_train=len(data.train),
            num_tokens=int(data.features.response_lens[data.train].sum()),
            num_greedy=int(data.features.is_greedy[data.train].sum()),
            num_held_out=data.num_held_out,
            num_steps=max((int(row["step"]) for row in rows), default=0),
            recipe=", ".join(f"{k}={v}" for k, v in described.items() if k != "_target_"),
            command=command,
            size_mb=sum(file.stat().st_size for file in path.parent.glob("*.safetensors")) / 1e6,
            num_eval=len(conditional),
            length=figures["acceptance_length"],
            conditional=_listed(conditional),
            served_length=served.length,
            served=_listed(served.conditional),
        ),
        encoding="utf-8",
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


TOKENS = "response_tokens"
"""The name of a step's trained tokens in a learning curve"""


def write_curve(rows: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw acceptance length against training tokens; of a step that was run twice, the later one counts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_step = {row["step"]: row for row in rows}
    points, num_tokens = [], 0.0
    for _, row in sorted(by_step.items()):
        num_tokens += row[TOKENS]
        if "acceptance_length" in row:
            points.append((num_tokens / 1e6, row["acceptance_length"]))
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(*zip(*points, strict=True), marker="o", markersize=3)
    axes.set_xlabel("response tokens trained on (millions, repetitions counted)")
    axes.set_ylabel("acceptance length, held-out")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
