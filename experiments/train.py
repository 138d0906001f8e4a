"""How is a drafter trained for a target?

    python -m experiments.train recipe=eagle3 loop.num_steps=4000            the data first, then the head
    python -m experiments.train recipe=medusa                                 on the same data
    python -m experiments.train workload=jsonl workload.path=mine.jsonl       prompts of one's own

Everything lies in one folder: the responses and features, and a folder a recipe with checkpoint, learning curve and
export. Always true: run again, it goes on where it stopped; held-out conversations are never trained on; what is
exported is the average of the weights with the best held-out acceptance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.composition import make, register_configs
from experiments.hydra_app import run_app
from experiments.training.card import TOKENS, write_card, write_curve
from experiments.training.data import TrainingData
from experiments.training.eagle import Acceptance, walk_acceptance
from experiments.training.features import INDEX, read_features, write_features
from experiments.training.heads import DraftModelRecipe, MedusaRecipe
from experiments.training.loop import BEST, LoopSettings, Training, batch_numbers
from experiments.training.recipes import Eagle1Recipe, Eagle3Recipe, Recipe
from experiments.training.responses import ResponseSettings, collect_responses, read_responses
from specinfer import registry
from specinfer.config import EngineConfig
from specinfer.errors import ConfigError
from specinfer.metrics import table, totals
from specinfer.metrics.figures import ACCEPTANCE_LENGTH_ALL, by_position
from specinfer.models.eagle import usual_points
from specinfer.models.transformers_model import TransformersModel
from specinfer.protocols import LoadedModel, Proposer
from specinfer.trackers.guard import GuardedTrackers
from specinfer.types import SamplingParams

RECIPES: Mapping[str, type] = {
    "eagle3": Eagle3Recipe,
    "eagle1": Eagle1Recipe,
    "medusa": MedusaRecipe,
    "draft_model": DraftModelRecipe,
}
CURVE = "curve.jsonl"


@dataclass(kw_only=True)
class TrainSettings:
    """The node `train` of the configuration.

    folder: where everything lies. name: the recipe's folder in it, None for the recipe's own name. batch_size:
    conversations a step. num_held_out: conversations kept for evaluation. num_eval_tokens: the chain that evaluation
    drafts. log_every: steps between lines.
    """

    folder: str = "runs/train"
    name: str | None = None
    batch_size: int = 4
    num_held_out: int = 64
    num_eval_tokens: int = 5
    log_every: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_held_out", "num_eval_tokens", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} must be at least 1, got {getattr(self, name)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the Hydra application on a command line; the exit status."""
    return run_app(train, "train", register, arguments)


def register(arguments: Sequence[str] = ()) -> None:
    """Store the schema and the recipes, beside what every experiment can choose."""
    from hydra.core.config_store import ConfigStore

    register_configs(arguments)
    store = ConfigStore.instance()
    for name, recipe in RECIPES.items():
        store.store(group="recipe", name=name, node=registry.node_of(recipe))
    for group, settings in {"train": TrainSettings, "loop": LoopSettings, "responses": ResponseSettings}.items():
        store.store(group=group, name="default", node=registry.node_of(settings))


def train(config: Any) -> None:
    """Collect what is missing, train what is left of the steps, and export."""
    settings, recipe, loop = make(config.train), make(config.recipe), make(config.loop)
    engine_config: EngineConfig = make(config.model)
    if engine_config.dtype != "float32":
        raise ConfigError(f"model.dtype must be float32 to train against, got {engine_config.dtype}")
    root = Path(settings.folder)
    out = root / (settings.name or recipe.name)
    tracker = GuardedTrackers([make(config.tracker)])
    loaded = _load(engine_config)
    workload = None if config.get("workload") is None else make(config.workload)
    data = prepare(
        loaded,
        engine_config,
        make(config.responses),
        root=root,
        num_held_out=settings.num_held_out,
        workload=workload,
    )
    training = Training(recipe.module(data), loop, dense=recipe.dense)
    if training.resume(out):
        print(f"going on at step {training.step}")
    out.mkdir(parents=True, exist_ok=True)
    tracker.start(out, {"recipe": recipe.name}, name=out.name, group="training", job_type="train")
    for step, figures in _run(training, recipe, data, settings, out):
        tracker.log(figures, step)
    command = " ".join(["python -m experiments.train", *sys.argv[1:]])
    export(training.module, recipe, data, out, settings=settings, command=command, engine_config=engine_config)
    tracker.summary({"best_acceptance_length": training.best})
    tracker.finish()


def _load(config: EngineConfig) -> LoadedModel:
    """The target with its weights as they are, since a head starts from them."""
    import dataclasses

    from specinfer.models.loading import load_model

    return load_model(dataclasses.replace(config, pack_linear_weights=False))


def prepare(
    loaded: LoadedModel,
    engine_config: EngineConfig,
    responses: ResponseSettings,
    *,
    root: Path,
    num_held_out: int,
    workload: Any = None,
) -> TrainingData:
    """The data in `root`, collected and computed as far as it is not there yet."""
    import dataclasses

    from specinfer.llm import LLM

    model = loaded.model
    if not isinstance(model, TransformersModel):
        raise ConfigError(f"{model.name} cannot be trained against: it is no transformers model")
    path, folder = root / "responses.jsonl", root / "features"
    known = read_responses(path)
    if len(known) < responses.num_conversations and not (folder / INDEX).exists():
        llm = LLM(dataclasses.replace(engine_config, record_events=False))  # packed weights: twice as fast
        for count in collect_responses(llm, responses, path, workload):
            print(f"{count} of {responses.num_conversations} conversations", flush=True)
        known = read_responses(path)
    if not (folder / INDEX).exists():
        for count in write_features(model, known, usual_points(model.num_layers), folder):
            print(f"features of {count} of {len(known)} conversations", flush=True)
    features = read_features(folder)
    if len(features.response_starts) <= num_held_out:
        raise ConfigError(
            f"train.num_held_out={num_held_out} leaves none of {features.num_conversations} conversations to learn from"
        )
    data = TrainingData(loaded, known[: features.num_conversations], features, root, num_held_out)
    if not data.held_out:
        raise ConfigError(
            f"none of the {num_held_out} held-out conversations is greedy, and only such tell what the engine accepts: "
            f"raise train.num_held_out or have 0.0 among responses.temperatures"
        )
    return data


def _run(
    training: Training, recipe: Recipe, data: TrainingData, settings: TrainSettings, out: Path
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train, printing and keeping the figures."""

    def loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        numbers = batch_numbers(len(data.train), settings.batch_size, settings.seed, step)
        value, figures = recipe.loss(training.module, data, [data.train[n] for n in numbers], step)
        return value, {**figures, TOKENS: float(data.features.response_lens[[data.train[n] for n in numbers]].sum())}

    def judge(module: nn.Module) -> dict[str, float]:
        return evaluate(module, recipe, data, settings.num_eval_tokens)

    with (out / CURVE).open("a", encoding="utf-8") as file:
        for step, figures in training.run(loss, judge, "acceptance_length", out):
            file.write(json.dumps({"step": step, **figures}) + "\n")
            if step % settings.log_every == 0 or "acceptance_length" in figures:
                shown = (f"{name} {value:.3f}" for name, value in figures.items() if name != TOKENS)
                print(step, ", ".join(shown), flush=True)
                file.flush()
            yield step, figures


def evaluate(module: nn.Module, recipe: Recipe, data: TrainingData, num_tokens: int) -> dict[str, float]:
    """What the engine would accept on the held-out greedy responses, with a chain of `num_tokens`."""
    lengths: list[list[int]] = []
    for start in range(0, len(data.held_out), 8):
        lengths += recipe.accepted(module, data, data.held_out[start : start + 8], num_tokens)
    found = walk_acceptance(lengths, num_tokens)
    return {
        "acceptance_length": found.length,
        **{f"conditional_{i}": value for i, value in enumerate(found.conditional)},
    }


def export(
    module: nn.Module,
    recipe: Recipe,
    data: TrainingData,
    out: Path,
    *,
    settings: TrainSettings,
    command: str,
    engine_config: EngineConfig,
) -> None:
    """Write the best weights in the public layout, with a card, the learning curve and what the engine says of them."""
    if not (out / BEST).exists():
        raise ConfigError(f"{out} holds no evaluated weights yet: train at least one step")
    module.load_state_dict(torch.load(out / BEST, weights_only=True))
    recipe.export(module, data, out / "export")
    rows = [json.loads(line) for line in (out / CURVE).read_text(encoding="utf-8").splitlines()]
    write_curve(rows, out / "export" / "learning_curve.png")
    figures = evaluate(module, recipe, data, settings.num_eval_tokens)
    served = engine_acceptance(
        recipe.proposer(out / "export", settings.num_eval_tokens), engine_config, data, settings.num_eval_tokens
    )
    write_card(out / "export" / "README.md", recipe, data, rows=rows, figures=figures, served=served, command=command)
    print(f"exported to {out / 'export'}: held-out acceptance length {figures['acceptance_length']:.3f}")
    for i, value in enumerate(served.conditional):
        foretold = figures[f"conditional_{i}"]
        print(f"position {i}: foretold {foretold:.3f}, the engine accepts {value:.3f}, gap {abs(value - foretold):.3f}")


def engine_acceptance(proposer: Proposer, config: EngineConfig, data: TrainingData, num_tokens: int) -> Acceptance:
    """What the engine accepts when it answers the held-out prompts again."""
    import dataclasses

    from specinfer.llm import LLM

    llm = LLM(dataclasses.replace(config, record_events=True), proposer)
    answers = [data.responses[n] for n in data.held_out]
    params = [SamplingParams(temperature=0, max_tokens=max(len(answer.token_ids), 1)) for answer in answers]
    llm.generate([answer.prompt_token_ids for answer in answers], params)
    events = table.from_events(llm.take_events())
    rates = by_position(events)
    length = ACCEPTANCE_LENGTH_ALL.micro(totals.by_request(events))
    conditional = [value or 0.0 for value in rates.conditional]
    return Acceptance([*conditional, *[0.0] * (num_tokens - len(conditional))], 1.0 if length is None else length)


if __name__ == "__main__":
    sys.exit(main())
