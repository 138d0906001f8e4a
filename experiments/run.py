"""Who is faster on these requests, by how much, and is the output the same?

The main job:

    python -m experiments.run                                    plain decoding and n-gram on our own prompts
    python -m experiments.run proposer.num_draft_tokens=8 run.batch_size=8
    python -m experiments.run -m proposer=ngram proposer.num_draft_tokens=1,2,4,8

Always true: one run is one folder under `runs/`; the plain baseline is measured in the same run, interleaved with every
method; a mistake in the configuration is one line on stderr and status 2, before a model is loaded where possible.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.comparison import Answer, Comparison, batches_of
from experiments.composition import PLAIN, Method, make, make_methods, register_configs
from experiments.distortion import form_table
from experiments.environment import describe_environment
from experiments.equality import Difference, check_equality
from experiments.grammar_states import states_table
from experiments.hydra_app import run_app
from experiments.progress import shown
from experiments.record import SUMMARY, RunRecord, flat_figures, shown_table, write_run_folder
from experiments.settings import RunSettings
from experiments.table import rich_table
from experiments.workloads import Conversation
from specinfer.config import EngineConfig
from specinfer.errors import ConfigError
from specinfer.metrics import table
from specinfer.protocols import LoadedModel, Tracker
from specinfer.trackers.guard import GuardedTrackers
from specinfer.trackers.jsonl import JsonlTracker
from specinfer.types import SamplingParams

if TYPE_CHECKING:
    from rich.console import Console

    from specinfer.llm import LLM

Loader = Callable[[EngineConfig], LoadedModel]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the Hydra application on a command line; the exit status."""
    return run_app(_job, "config", register_configs, arguments)


def _job(config: Any) -> None:
    """One run, in the folder that Hydra made for it."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from rich.console import Console

    hydra_config = HydraConfig.get()
    console = Console(width=None if sys.stdout.isatty() else 130)
    job_type = "sweep" if hydra_config.mode is RunMode.MULTIRUN else "compare"
    record = execute(config, Path(hydra_config.runtime.output_dir), console, job_type=job_type)
    if record.interrupted:
        raise KeyboardInterrupt
    if len(record.failures) == len(record.results):
        raise ConfigError(f"no request could be served; the first: {record.failures[0]['error']}")


def load_shared_model(config: EngineConfig) -> LoadedModel:
    """The model of a configuration, its weights loaded once for every method."""
    from specinfer.models.loading import load_model

    return load_model(config)


def execute(
    config: Any, run_dir: Path, console: Console, *, load: Loader = load_shared_model, job_type: str = "compare"
) -> RunRecord:
    """Measure what a composed configuration says and write the run folder; errors before any output are the user's."""
    if (run_dir / SUMMARY).exists():
        raise ConfigError(f"{run_dir} already holds a run: give another hydra.run.dir")
    settings, sampling, engine_config = make(config.run), make(config.sampling), make(config.model)
    _check(sampling, engine_config)
    methods, trackers = make_methods(config), _trackers(make(config.tracker))
    batches = batches_of(make(config.workload).load(), settings.batch_size)
    engines = _engines(methods, engine_config, load(engine_config))
    free = frozenset(method.name for method in methods if method.is_free)
    plain_config = _plain(config)
    trackers.start(run_dir, plain_config, name=run_dir.name, group=settings.group, job_type=job_type)
    started, start = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    comparison = Comparison(engines, sampling, settings.chat, free)
    interrupted = _measure(comparison, batches, settings, trackers, console)
    differences = check_equality(comparison.answers, engines, sampling, settings.batch_size)
    record = RunRecord(
        name=settings.name,
        started=started,
        seconds=time.monotonic() - start,
        interrupted=interrupted,
        config=plain_config,
        methods={name: engine.describe() for name, engine in engines.items()},
        environment=describe_environment(),
        answers=comparison.answers,
        events=table.concat(comparison.events),
        differences=differences,
    )
    _finish(record, run_dir, trackers, console)
    return record


def _check(sampling: SamplingParams, engine_config: EngineConfig) -> None:
    if sampling.n != 1:
        raise ConfigError(f"sampling.n must be 1 in a comparison, got {sampling.n}: use run.repeats")
    if not engine_config.record_events:
        raise ConfigError("model.record_events must be true: every figure comes from the events")


def _trackers(chosen: Tracker) -> GuardedTrackers:
    """The chosen tracker, and the JSON Lines one in any case."""
    return GuardedTrackers([chosen] if isinstance(chosen, JsonlTracker) else [JsonlTracker(), chosen])


def _engines(methods: Sequence[Method], config: EngineConfig, loaded: LoadedModel) -> dict[str, LLM]:
    from specinfer.llm import LLM

    engines: dict[str, LLM] = {}
    for method in methods:
        shared = engines[PLAIN].grammars if engines else None  # a form is compiled once for all methods
        engines[method.name] = LLM(
            config, method.proposer, method.verifier, method.controller, loaded_model=loaded, grammars=shared
        )
    return engines


def _plain(config: Any) -> Mapping[str, Any]:
    from omegaconf import OmegaConf

    container: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return container  # type: ignore[no-any-return]


def _measure(
    comparison: Comparison,
    batches: Sequence[Sequence[Conversation]],
    settings: RunSettings,
    trackers: GuardedTrackers,
    console: Console,
) -> bool:
    """Warm up and run; whether it was interrupted after something had been measured."""
    total = settings.repeats * sum(max(len(c.turns) for c in batch) for batch in batches)
    try:
        comparison.warm_up(batches, settings.num_warmup)
        with shown(console, total) as progress:
            for step, answers in enumerate(comparison.run(batches, settings.repeats)):
                metrics = _speeds(answers)
                trackers.log(metrics, step)
                note = ", ".join(f"{name.removesuffix('/tokens_per_s')} {v:.1f}" for name, v in metrics.items())
                progress.advance(f"{answers[0].task}: {note} tokens/s")
    except KeyboardInterrupt:
        if not comparison.answers:
            raise
        return True
    return False


def _speeds(answers: Sequence[Answer]) -> dict[str, float]:
    """Tokens/s of each method in one group of calls."""
    speeds = {}
    for name in sorted({answer.method for answer in answers}):
        own = [answer for answer in answers if answer.method == name]
        seconds = sum(answer.seconds for answer in own)
        if seconds > 0:
            speeds[f"{name}/tokens_per_s"] = sum(len(answer.token_ids) for answer in own) / seconds
    return speeds


def _finish(record: RunRecord, run_dir: Path, trackers: GuardedTrackers, console: Console) -> None:
    """Write the folder, tell the trackers, print the table and what went wrong."""
    for path, kind in write_run_folder(record, run_dir).items():
        trackers.artifact(path, kind)
    trackers.table("figures", *shown_table(record))
    trackers.summary({**flat_figures(record), "interrupted": record.interrupted})
    trackers.finish()
    title = f"{record.name}: {record.config['model']['model']}, batch size {record.config['run']['batch_size']}"
    console.print(rich_table(record.overall, record.tasks, title))
    if record.grammar_states:
        console.print(states_table(record.grammar_states))
        console.print(form_table(record.forms))
    for difference in record.differences:
        console.print(_explained(difference), highlight=False)
    for (task, question_id, error), methods in _by_request(record.failures).items():
        console.print(f"left out: {task} {question_id} ({', '.join(methods)}): {error}", soft_wrap=True)
    for unhelped in record.draft_errors:
        console.print(f"drafter failed: {unhelped['method']}, {unhelped['question_id']}: {unhelped['draft_error']}")
    if record.interrupted:
        console.print("interrupted: only what every method had answered is counted")
    console.print(f"report: {run_dir / 'report.html'}", highlight=False, soft_wrap=True)


def _by_request(failures: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str]]:
    """The methods that failed on a request in the same way, by task, question and error."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for failure in failures:
        methods = found.setdefault((failure["task"], failure["question_id"], failure["error"]), [])
        methods += [] if failure["method"] in methods else [failure["method"]]
    return found


def _explained(difference: Difference) -> str:
    """One line on an answer that is not the plain one."""
    margin, noise = (
        "unknown" if value is None else f"{value:.1e}" for value in (difference.top2_margin, difference.noise)
    )
    return (
        f"different: {difference.method}, {difference.task} {difference.question_id} turn {difference.turn}, at output "
        f"token {difference.position}: top-2 margin {margin} nats, rounding noise {noise}; "
        f"{'a tie' if difference.is_tie else 'NOT explained by rounding'}"
    )


if __name__ == "__main__":
    # A run that a cluster ends keeps what is done, as one ended by Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
