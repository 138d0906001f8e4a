"""Is the engine fast enough to be worth speculating on?

One interleaved run on the demo model: transformers' `generate`, plain decoding, n-gram drafts and a batch of 16, prompt
by prompt with the order rotated. Always true: figures are ratios within this run, with intervals over prompts; both
sides decode the same prompts to the same number of tokens and include the prefill; prefix caching is off.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.workloads import OwnPrompts
from specinfer.config import CacheConfig, EngineConfig
from specinfer.events import StepEvent
from specinfer.llm import LLM
from specinfer.metrics.intervals import Interval, ratio_interval
from specinfer.models.loading import load_model
from specinfer.types import SamplingParams

NUM_TOKENS = 128
PROMPTS_PER_TASK = 2
DRAFT_TASKS = ("repeat", "code_edit", "summarise")
CONFIG = EngineConfig(cache=CacheConfig(enable_prefix_caching=False))
SAMPLING = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)

Generate = Callable[[list[int]], list[int]]


@dataclass
class Timing:
    """Seconds and tokens of one contender, a value a prompt, in the prompts' order."""

    seconds: list[float] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)

    def run(self, generate: Generate, prompt: list[int]) -> None:
        """Time one prompt."""
        start = time.perf_counter()
        token_ids = generate(prompt)
        self.seconds.append(time.perf_counter() - start)
        self.token_ids.append(token_ids)

    def tokens_per_s(self) -> float:
        return sum(map(len, self.token_ids)) / sum(self.seconds)


def transformers_generate(static_cache: bool) -> Generate:
    """The same weights, as transformers runs them: eager, its own attention, unpacked."""
    import torch
    from transformers import AutoModelForCausalLM

    from specinfer.models.demo import demo_folder

    model: Any = AutoModelForCausalLM.from_pretrained(demo_folder(), dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    options: dict[str, Any] = {"cache_implementation": "static"} if static_cache else {}

    def generate(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, do_sample=False, **options
        )
        new: list[int] = output[0, len(prompt) :].tolist()
        return new

    return generate


def engine_generate(llm: LLM) -> Generate:
    """One request through an engine."""

    def generate(prompt: list[int]) -> list[int]:
        return llm.generate([prompt], SAMPLING)[0].outputs[0].token_ids

    return generate


def faster_transformers(prompt: list[int]) -> tuple[str, Generate]:
    """The faster of dynamic and static cache on one prompt, the second of two tries each."""
    best: tuple[float, str, Generate] | None = None
    for name, is_static in (("dynamic", False), ("static", True)):
        generate, timing = transformers_generate(is_static), Timing()
        for _ in range(2):
            timing.run(generate, prompt)
        if best is None or timing.seconds[-1] < best[0]:
            best = (timing.seconds[-1], name, generate)
    assert best is not None
    return best[1], best[2]


@dataclass
class Bench:
    """The contenders and what they took."""

    prompts: Sequence[list[int]]
    tasks: Sequence[str]
    timings: dict[str, Timing] = field(default_factory=dict)
    batch_seconds: list[float] = field(default_factory=list)
    plain_events: list[StepEvent] = field(default_factory=list)
    cache: str = ""

    def run(self) -> None:
        """Every prompt by every contender in rotated order; the batch of 16 before, between and after."""
        loaded = load_model(CONFIG)
        plain, ngram, batch = (LLM(CONFIG, proposer, loaded_model=loaded) for proposer in (None, "ngram", None))
        self.cache, hf_generate = faster_transformers(self.prompts[0])
        contenders = {"transformers": hf_generate, "plain": engine_generate(plain), "ngram": engine_generate(ngram)}
        for generate in contenders.values():
            generate(self.prompts[0][:32])
        plain.take_events()
        self.timings = {name: Timing() for name in contenders}
        names = list(contenders)
        for index, prompt in enumerate(self.prompts):
            if index % (len(self.prompts) // 2) == 0:
                self._run_batch(batch)
            for name in names[index % 3 :] + names[: index % 3]:
                self.timings[name].run(contenders[name], prompt)
            print(f"prompt {index + 1}/{len(self.prompts)}", file=sys.stderr)
        self._run_batch(batch)
        self.plain_events = plain.take_events()

    def _run_batch(self, llm: LLM) -> None:
        start = time.perf_counter()
        llm.generate(list(self.prompts), SAMPLING)
        self.batch_seconds.append(time.perf_counter() - start)
        llm.take_events()

    # --------------------------------------------------------------------------------------------- figures

    def speedup(self, name: str, base: str, tasks: Sequence[str] | None = None) -> Interval:
        """Ratio of the two contenders' times over the same prompts."""
        keep = [i for i, task in enumerate(self.tasks) if tasks is None or task in tasks]
        found = ratio_interval(
            np.array([self.timings[base].seconds[i] for i in keep]),
            np.array([self.timings[name].seconds[i] for i in keep]),
        )
        assert found is not None
        return found

    def batch_speedup(self) -> float:
        """Throughput of the batch over that of its prompts one by one."""
        return sum(self.timings["plain"].seconds) / float(np.median(self.batch_seconds))

    def outside_forward(self) -> float:
        """Median share of a plain batch-1 decode step that is not the model's forward."""
        shares = [
            1 - e.forward_s / (e.draft_s + e.forward_s + e.grammar_s + e.verify_s + e.other_s)
            for e in self.plain_events
            if e.is_decode
        ]
        return float(np.median(shares))

    def num_equal(self, name: str) -> int:
        return sum(a == b for a, b in zip(self.timings[name].token_ids, self.timings["plain"].token_ids, strict=True))


def peak_memory_gib() -> float:
    """Peak resident memory of a process of its own that loads the model and decodes the batch of 16."""
    command = [sys.executable, "-m", "experiments.bench", "--batch-only"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(result.stdout.strip().splitlines()[-1])


def batch_only() -> None:
    """Decode the batch and print this process's peak memory in GiB."""
    prompts, _ = prompts_and_tasks()
    LLM(CONFIG).generate(prompts, SAMPLING)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def prompts_and_tasks() -> tuple[list[list[int]], list[str]]:
    """The first two of each of our own tasks, in the chat template."""
    conversations = OwnPrompts(limit_per_category=PROMPTS_PER_TASK).load()
    tokenizer = load_model(CONFIG).tokenizer
    prompts = [tokenizer.render_chat([{"role": "user", "content": c.turns[0]}]) for c in conversations]
    return prompts, [c.task for c in conversations]


def main() -> None:
    """Run, print a table with the goals, and write the figures under runs/."""
    from rich.console import Console
    from rich.table import Table

    bench = Bench(*prompts_and_tasks())
    bench.run()
    n = len(bench.prompts)
    rows = [
        (f"plain / transformers ({bench.cache} cache)", f"{bench.speedup('plain', 'transformers')}", ">= 1.15"),
        ("batch 16 / batch 1", f"{bench.batch_speedup():.2f}", ">= 4"),
        ("outside the forward, batch 1", f"{bench.outside_forward():.1%}", "<= 6%"),
        (f"ngram / plain on {', '.join(DRAFT_TASKS)}", f"{bench.speedup('ngram', 'plain', DRAFT_TASKS)}", ">= 1.15"),
        ("ngram / plain, all tasks", f"{bench.speedup('ngram', 'plain')}", ""),
        ("peak memory, batch 16 (GiB)", f"{peak_memory_gib():.2f}", "< 3"),
        ("ngram outputs equal to plain's", f"{bench.num_equal('ngram')}/{n}", ""),
        ("transformers outputs equal to plain's", f"{bench.num_equal('transformers')}/{n}", ""),
        *[(f"{name} tok/s, batch 1", f"{timing.tokens_per_s():.1f}", "") for name, timing in bench.timings.items()],
        ("plain tok/s, batch 16", f"{NUM_TOKENS * n / float(np.median(bench.batch_seconds)):.1f}", ""),
    ]
    shown = Table("figure", "measured [95% interval]", "goal", title=f"{n} prompts, {NUM_TOKENS} new tokens, float32")
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)
    folder = Path("runs") / time.strftime("%Y-%m-%d_%H-%M-%S_bench")
    folder.mkdir(parents=True)
    record = {"figures": rows, "tasks": bench.tasks, "timings": {k: asdict(t) for k, t in bench.timings.items()}}
    (folder / "bench.json").write_text(json.dumps(record | {"batch_seconds": bench.batch_seconds}))
    print(f"written to {folder}/bench.json")


if __name__ == "__main__":
    batch_only() if "--batch-only" in sys.argv[1:] else main()
