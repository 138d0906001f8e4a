"""How does a run appear in Weights & Biases?

Config, history over the step metric `request_step`, tables, plots and the summary, with group and job type. Always
true: without a key the run is kept offline by itself, and no login is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from specinfer.errors import ConfigError

STEP_METRIC = "request_step"
DEFAULT_URL = "https://api.wandb.ai"


class WandbMode(Enum):
    """`auto` is online where a key is set and offline where none is."""

    AUTO = "auto"
    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(kw_only=True)
class WandbTracker:
    """Records a run in Weights & Biases, online or in the run folder's `wandb/`.

    group: None for the run's own. upload_tables: upload Parquet tables too, not figures and report alone.
    """

    project: str = "specinfer"
    entity: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    mode: WandbMode = WandbMode.AUTO
    upload_tables: bool = False
    _run: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.project:
            raise ConfigError("tracker.project is empty: give the name of a Weights & Biases project")

    def start(self, run_dir: Path, config: Mapping[str, Any], *, name: str, group: str, job_type: str) -> None:
        import wandb

        self._run = wandb.init(
            dir=run_dir,
            project=self.project,
            entity=self.entity,
            name=name,
            group=self.group or group,
            job_type=job_type,
            tags=self.tags,
            config=dict(config),
            mode=self._mode(),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric(STEP_METRIC, hidden=True)
        self._run.define_metric("*", step_metric=STEP_METRIC)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log({**metrics, STEP_METRIC: step})

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        import wandb

        self._run.log({name: wandb.Table(columns=list(columns), data=[list(row) for row in rows])})

    def artifact(self, path: Path, kind: str) -> None:
        import wandb

        if kind == "figure":
            self._run.log({f"plots/{path.stem}": wandb.Image(str(path))})
        elif kind == "report":
            self._run.log({path.stem: wandb.Html(path.read_text(encoding="utf-8"), inject=False)})
        elif self.upload_tables:
            self._run.save(str(path), base_path=str(path.parent), policy="now")

    def summary(self, values: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(values))

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _mode(self) -> Literal["online", "offline"] | None:
        """None leaves the choice to wandb, which reads WANDB_MODE and is online otherwise."""
        if self.mode is WandbMode.AUTO:
            return None if os.environ.get("WANDB_MODE") or has_key() else "offline"
        return "online" if self.mode is WandbMode.ONLINE else "offline"


def has_key() -> bool:
    """Whether a key is set, in the environment or in a netrc file; nothing is sent and no file is written."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or DEFAULT_URL).hostname
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        return path.is_file() and host is not None and netrc(str(path)).authenticators(host) is not None
    except (NetrcParseError, OSError):
        return False
