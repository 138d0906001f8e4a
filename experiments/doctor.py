"""How is an EAGLE head's checkpoint to be read, and does it work with this target?

    python -m experiments.doctor head=path/to/head                     for the demo model
    python -m experiments.doctor model=path/to/model head=... open_only=true num_tokens=128 depth=5

It runs every reading over a fixed text (the project's own prompts, or `text`, answered greedily by the target) and
ranks them by what the target accepts. Always true: nothing is changed and nothing assumed: a reading is recommended
only where it accepts clearly more than the others. The exit status is 0 where the stated reading (or the best, where
the checkpoint leaves it open) is clear and works, 1 for a problem with the head, 2 for a mistake of the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.complaint import one_line
from experiments.head_checks import Check, Level, all_readings, static_checks, written
from experiments.head_trials import Trial, run_trial
from experiments.hydra_app import STATUS_INTERRUPTED, STATUS_MISTAKE
from experiments.workloads import OwnPrompts
from specinfer.config import EngineConfig
from specinfer.errors import ConfigError
from specinfer.models.eagle_checkpoint import Checkpoint, EagleReading, head_folder, read_checkpoint
from specinfer.protocols import HiddenStateModel, LoadedModel

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STATUS_PROBLEM = 1
Loader = Callable[[EngineConfig], LoadedModel]


@dataclass(kw_only=True)
class DoctorSettings:
    """What is examined.

    model, dtype, device: as in the engine's configuration. head: a folder, or `demo`. num_tokens: of each answer.
    depth: draft tokens a step. open_only: trust what the checkpoint states and try only what it leaves open. text: a
    prompt in place of the bundled ones. chat: put prompts in the model's chat template; false for a model without one.
    """

    model: str = "demo"
    head: str = "demo"
    num_tokens: int = 64
    depth: int = 4
    open_only: bool = False
    text: str | None = None
    chat: bool = True
    dtype: str = "float32"
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, low in (("num_tokens", 8), ("depth", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be at least {low}, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Examination:
    """All that was found."""

    stated: EagleReading
    choices: Mapping[str, Sequence[Any]]
    trials: list[Trial]
    """Best first"""
    failed: dict[str, str]
    """Readings that cannot be, and why"""
    checks: list[Check]

    @property
    def is_sound(self) -> bool:
        return all(check.level is not Level.FAULT for check in self.checks)


def main(arguments: Sequence[str] | None = None, *, load: Loader | None = None) -> int:
    """Examine the head that a command line names; the exit status. load: gives the model of a configuration."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "--help"} & set(given):
        print(__doc__, DoctorSettings.__doc__, sep="\n")
        return 0
    try:
        return examine_and_show(settings_of(given), load or _load)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return STATUS_INTERRUPTED
    except Exception as error:
        complaint = one_line(error)
        if complaint is None:
            raise
        print(f"error: {complaint}", file=sys.stderr)
        return STATUS_MISTAKE


def settings_of(arguments: Sequence[str]) -> DoctorSettings:
    """The settings of `key=value` arguments."""
    from omegaconf import OmegaConf

    odd = [argument for argument in arguments if "=" not in argument]
    if odd:
        raise ConfigError(f"{odd[0]!r} is not key=value; --help shows every key")
    pairs = dict(argument.split("=", 1) for argument in arguments)
    merged = OmegaConf.merge(OmegaConf.structured(DoctorSettings), pairs)
    values: Any = OmegaConf.to_container(merged)
    return DoctorSettings(**values)


def _load(config: EngineConfig) -> LoadedModel:
    from specinfer.models.loading import load_model

    return load_model(config)


def examine_and_show(settings: DoctorSettings, load: Loader) -> int:
    """Examine and print; the exit status."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    checkpoint = read_checkpoint(head_folder(settings.head))
    config = EngineConfig(model=settings.model, dtype=settings.dtype, device=settings.device)
    found = examine(settings, checkpoint, config, load(config))
    show(found, console, f"{checkpoint.folder} for {settings.model}")
    return 0 if found.is_sound else STATUS_PROBLEM


def examine(settings: DoctorSettings, checkpoint: Checkpoint, config: EngineConfig, loaded: LoadedModel) -> Examination:
    """Check the checkpoint and try its readings."""
    target = loaded.model
    if not isinstance(target, HiddenStateModel):
        raise ConfigError(f"{target.name} shows no hidden states; no EAGLE head can be used with it")
    checks = static_checks(checkpoint, target)
    choices, stated = checkpoint.choices(target), checkpoint.stated(target)
    trials: list[Trial] = []
    failed: dict[str, str] = {}
    if checks[0].level is Level.OK:  # it can be built
        prompts = prompts_of(settings, loaded)
        kept = {n: value for n, value in stated.answers.items() if settings.open_only and value in choices[n]}
        for reading in all_readings(choices, kept):
            try:
                sizes = {"num_tokens": settings.num_tokens, "depth": settings.depth}
                trials.append(run_trial(str(checkpoint.folder), reading, config, loaded, prompts=prompts, **sizes))
            except ConfigError as error:
                failed[written(reading.answers)] = str(error)
    trials.sort(key=lambda trial: -trial.length)
    return Examination(stated, choices, trials, failed, [*checks, *verdict(trials, stated, choices)])


def prompts_of(settings: DoctorSettings, loaded: LoadedModel) -> list[list[int]]:
    """The token ids that the target is asked to continue."""
    texts = [settings.text] if settings.text else [c.turns[0] for c in OwnPrompts(limit_per_category=1).load()]
    tokenizer = loaded.tokenizer
    if not settings.chat:
        return [tokenizer.encode(text) for text in texts]
    return [tokenizer.render_chat([{"role": "user", "content": text}]) for text in texts]


def verdict(trials: Sequence[Trial], stated: EagleReading, choices: Mapping[str, Sequence[Any]]) -> list[Check]:
    """What the trials, best first, say about the head."""
    if not trials:
        return []
    best = trials[0]
    if not any(trial.works for trial in trials):
        return [_useless(best)]
    checks = []
    allowed = [trial for trial in trials if agrees(trial.reading, stated)]
    advice = _advice(best, stated)
    num_rivals = sum(not best.beats(trial) for trial in trials[1:])
    if num_rivals:
        advice += f" (not clear of {num_rivals} others on this text: give more num_tokens)"
    if not allowed:
        checks.append(Check("acceptance", Level.FAULT, f"the stated reading cannot be; {advice}"))
    elif best.beats(allowed[0]):
        text = f"the stated reading accepts {allowed[0].length:.2f} a step, another one {best.length:.2f}"
        checks.append(Check("acceptance", Level.FAULT, f"{text}; {advice}"))
    elif len(allowed) > 1 and not allowed[0].beats(allowed[1]):
        left = [name for name in choices if name not in stated.answers]
        tied = [trial for trial in allowed if not allowed[0].beats(trial)]
        text = f"{len(tied)} readings cannot be told apart on this text ({', '.join(left)}): give more num_tokens"
        checks.append(Check("acceptance", Level.FAULT, text))
    else:
        text = f"{allowed[0].length:.2f} tokens a step, {allowed[0].first_rate:.0%} at the first position"
        advice = "this is the stated reading" if len(allowed) == 1 else _advice(allowed[0], stated)
        checks.append(Check("acceptance", Level.OK, f"{text}; {advice}"))
    return checks + _mapping(best)


def agrees(reading: EagleReading, stated: EagleReading) -> bool:
    """The reading contradicts nothing that is stated."""
    return all(reading.answers[name] == value for name, value in stated.answers.items())


def _advice(trial: Trial, stated: EagleReading) -> str:
    new = {name: value for name, value in trial.reading.answers.items() if stated.answers.get(name) != value}
    return f"give {written(new)}"


def _useless(best: Trial) -> Check:
    """Why no reading foresees anything: its map, or its target."""
    rate = f"{best.first_rate:.0%} at the first position, always guessing one token accepts {best.chance:.0%}"
    if best.mismapped():
        return _mapping(best)[0]
    return Check("acceptance", Level.FAULT, f"no reading works ({rate}): this head is not for this target")


def _mapping(trial: Trial) -> list[Check]:
    """Entries of the vocabulary map that the text contradicts."""
    found = trial.mismapped()
    if not found:
        return []
    shown = ", ".join(f"{drafted} where the target says {said}" for drafted, said in list(found.items())[:4])
    text = f"d2t is wrong, its entries are swapped: it drafts {shown}" + (", ..." if len(found) > 4 else "")
    return [Check("vocabulary map", Level.FAULT, text)]


def show(found: Examination, console: Console, title: str) -> None:
    """Print the ranking and the checks."""
    from rich.markup import escape

    if found.trials:
        console.print(ranking(found, title))
    for reading, reason in found.failed.items():
        console.print(escape(f"cannot be: {reading}: {reason}"))
    for check in found.checks:
        console.print(f"{check.level.value:<6}{escape(f'{check.subject}: {check.text}')}", soft_wrap=True)


def ranking(found: Examination, title: str) -> Table:
    """A row a reading, best first."""
    from rich.table import Table

    num_positions = max(len(trial.rates.conditional) for trial in found.trials)
    num_steps = found.trials[0].rates.num_drafted_steps
    caption = f"Accepted by position, given that the one before was; {num_steps} drafted steps. Own tokens fed back."
    shown = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for name in ("stated", *(name.replace("_", " ") for name in found.choices)):
        shown.add_column(name)
    for name in ("tokens a step", *(str(position) for position in range(num_positions))):
        shown.add_column(name, justify="right")
    is_open = len(found.stated.answers) < len(found.choices)
    for trial in found.trials:
        mark = ("allowed" if is_open else "stated") if agrees(trial.reading, found.stated) else ""
        answers = [str(getattr(trial.reading.answers[n], "name", trial.reading.answers[n])) for n in found.choices]
        rates = ["-" if rate is None else f"{rate:.3f}" for rate in trial.rates.conditional]
        rates += ["-"] * (num_positions - len(rates))
        shown.add_row(mark, *answers, f"{trial.length:.2f} ± {trial.error:.2f}", *rates)
    return shown


if __name__ == "__main__":
    sys.exit(main())
