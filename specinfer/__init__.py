"""A laboratory for speculative decoding and structured generation.

The output law is the target's whatever is combined with whatever, and every number comes from one event log.
"""

from typing import TYPE_CHECKING, Any

from specinfer.config import (
    CacheConfig,
    EngineConfig,
    SchedulerConfig,
    SchedulingPolicy,
    StructuredConfig,
)
from specinfer.errors import (
    ConfigError,
    GrammarError,
    PluginError,
    RequestError,
    SpecinferError,
    UnsupportedModelError,
)
from specinfer.forms import AuditPolicy, GrammarLimits, IllegalDrafts, StructuredOutputs
from specinfer.types import CompletionOutput, Draft, FinishReason, OutputKind, RequestOutput, SamplingParams

if TYPE_CHECKING:
    from specinfer.llm import LLM

__all__ = [
    "LLM",
    "AuditPolicy",
    "CacheConfig",
    "CompletionOutput",
    "ConfigError",
    "Draft",
    "EngineConfig",
    "FinishReason",
    "GrammarError",
    "GrammarLimits",
    "IllegalDrafts",
    "OutputKind",
    "PluginError",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "SchedulerConfig",
    "SchedulingPolicy",
    "SpecinferError",
    "StructuredConfig",
    "StructuredOutputs",
    "UnsupportedModelError",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import LLM on first use: a plugin that only needs the types should not load transformers."""
    if name == "LLM":
        from specinfer.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
