"""Which schemas can be enforced, is the output valid, and what does it cost with and without speculation?

    python -m experiments.json_schema workload.path=schemas.jsonl
    python -m experiments.json_schema workload.path=schemas.jsonl sampling.temperature=1 workload.limit=40
    python -m experiments.json_schema workload.path=schemas.jsonl workload.policy=allow

The file is in JSONSchemaBench's format. First every schema is compiled by every backend and by `auto`, and its
instances are walked token by token; then `experiments.run` with `experiment=json_schema` answers them, which judges
what comes out by validators that know no grammar. Always true: both parts have the same schemas, in one folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import run
from experiments.composition import make, register_configs
from experiments.coverage import AUTO, attempts, coverage_frame, coverage_table
from experiments.hydra_app import run_app
from specinfer.config import EngineConfig
from specinfer.engine.forming import token_table
from specinfer.errors import ConfigError
from specinfer.protocols import LoadedModel
from specinfer.structured.manager import GrammarManager

COVERAGE = "coverage.parquet"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run on a command line; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run_app(_job, "config", register_configs, ["experiment=json_schema", *given])


def _job(config: Any) -> None:
    from hydra.core.hydra_config import HydraConfig
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 130)
    execute(config, Path(HydraConfig.get().runtime.output_dir), console)


def execute(config: Any, run_dir: Path, console: Any, *, load: run.Loader = run.load_shared_model) -> None:
    """Both parts for a composed configuration, into one folder."""
    engine_config: EngineConfig = make(config.model)
    conversations = make(config.workload).load()
    if not any(conversation.form for conversation in conversations):
        raise ConfigError("the workload has no forms: choose workload=json_schemas or workload=forms")
    loaded = load(engine_config)
    _cover(conversations, engine_config, loaded, run_dir, console)
    run.execute(config, run_dir, console, load=lambda _: loaded, job_type="json_schema")


def _cover(conversations: Any, config: EngineConfig, loaded: LoadedModel, run_dir: Path, console: Any) -> None:
    tokens = token_table(loaded)
    manager = GrammarManager(config.structured, lambda: tokens)
    try:
        found = attempts(conversations, manager, loaded.tokenizer, config.structured)
    finally:
        manager.close()
    coverage_frame(found).write_parquet(run_dir / COVERAGE)
    console.print(coverage_table(found))
    for attempt in found:
        if attempt.backend == AUTO and attempt.error is not None:
            console.print(f"{attempt.outcome.value}: {attempt.question_id}: {attempt.error}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
