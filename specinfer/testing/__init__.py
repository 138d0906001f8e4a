"""How is a plugin tried without a real model, and how is its output law proven?

Fakes small enough to enumerate every outcome, and the conformance suite that each plugin runs, ours or yours.
"""

from specinfer.testing.conformance import CheckResult, check, run_checks
from specinfer.testing.laws import BiasedVerifier, assert_same_law, enumerate_outcomes, output_law
from specinfer.testing.models import ByteTokenizer, TinyModel, tiny_loaded_model
from specinfer.testing.proposers import SampledProposer, ScriptedProposer
from specinfer.testing.reference import echo_script, greedy_continuation, oracle_script

__all__ = [
    "BiasedVerifier",
    "ByteTokenizer",
    "CheckResult",
    "SampledProposer",
    "ScriptedProposer",
    "TinyModel",
    "assert_same_law",
    "check",
    "echo_script",
    "enumerate_outcomes",
    "greedy_continuation",
    "oracle_script",
    "output_law",
    "run_checks",
    "tiny_loaded_model",
]
