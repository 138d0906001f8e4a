"""How is an engine set up?

Validated dataclasses, the one place of every default. Always true: an instance that exists can be built by `LLM`
unless the machine or the model refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from specinfer.errors import ConfigError, check_count
from specinfer.forms import GrammarLimits, IllegalDrafts


class SchedulingPolicy(Enum):
    """Who goes first: the earliest arrival, or the smallest `SamplingParams.priority` and then the earliest."""

    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """The paged KV cache. `num_blocks=None` takes as many blocks as fit in `kv_memory_bytes`."""

    block_size: int = 16
    num_blocks: int | None = None
    kv_memory_bytes: int = 1 << 30
    enable_prefix_caching: bool = True

    def __post_init__(self) -> None:
        check_count("cache.block_size", self.block_size, 1)
        check_count("cache.num_blocks", self.num_blocks, 1, optional=True)
        check_count("cache.kv_memory_bytes", self.kv_memory_bytes, 1)


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """What one step may hold.

    `priority_aging_steps`: under the priority policy a waiting request has gained one level for each so many steps
    since it arrived, so that none starves; None switches ageing off.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    policy: SchedulingPolicy = SchedulingPolicy.FCFS
    priority_aging_steps: int | None = 1000

    def __post_init__(self) -> None:
        check_count("scheduler.max_num_seqs", self.max_num_seqs, 1)
        check_count("scheduler.max_num_batched_tokens", self.max_num_batched_tokens, 1)
        check_count("scheduler.priority_aging_steps", self.priority_aging_steps, 1, optional=True)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"scheduler.max_num_batched_tokens={self.max_num_batched_tokens} is less than max_num_seqs="
                f"{self.max_num_seqs}: each running sequence needs a token a step; raise the one or lower the other"
            )


@dataclass(frozen=True, kw_only=True)
class StructuredConfig:
    """How grammars are compiled and kept.

    backends: tried in this order by `auto`. limits: of every request; a request may lower them. cache_bytes: compiled
    grammars that are kept for requests to come. num_workers: grammars compiled at a time. isolate: compile in processes
    that are killed at a limit, where the backend asks for it; without, a limit on time ends the wait only.
    """

    backends: Sequence[str] = ("llguidance", "xgrammar", "outlines")
    limits: GrammarLimits = field(default_factory=GrammarLimits)
    cache_bytes: int = 256 << 20
    num_workers: int = 1
    isolate: bool = True
    illegal_drafts: IllegalDrafts = IllegalDrafts.KEEP

    def __post_init__(self) -> None:
        if not self.backends:
            raise ConfigError("structured.backends is empty: name at least one grammar backend")
        object.__setattr__(self, "backends", tuple(self.backends))
        check_count("structured.cache_bytes", self.cache_bytes, 0)
        check_count("structured.num_workers", self.num_workers, 1)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """An engine around one target model.

    model: `demo`, a folder with safetensors, a `.gguf` file, or a hub id. dtype: a torch dtype's name, or `auto` for
    the checkpoint's. device: a torch device, or `auto` for the GPU where there is one. max_model_len: longest prompt
    plus output, None for the model's own. num_threads: torch's intra-op threads, None to leave them. record_events:
    keep a StepEvent a request and step until they are taken. pack_linear_weights: on a CPU in float32, keep linear
    weights in oneDNN's layout (faster; other rounding than transformers').
    """

    model: str = "demo"
    revision: str | None = None
    trust_remote_code: bool = False
    dtype: str = "float32"
    device: str = "auto"
    max_model_len: int | None = None
    seed: int = 0
    num_threads: int | None = None
    record_events: bool = True
    pack_linear_weights: bool = True
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    structured: StructuredConfig = field(default_factory=StructuredConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ConfigError(f"model must be a name or a path, got {self.model!r}")
        if self.dtype not in {"auto", "float64", "float32", "bfloat16", "float16"}:
            raise ConfigError(f"dtype must be auto, float64, float32, bfloat16 or float16, got {self.dtype!r}")
        check_count("max_model_len", self.max_model_len, 2, optional=True)
        check_count("num_threads", self.num_threads, 1, optional=True)
        check_count("seed", self.seed, 0)
