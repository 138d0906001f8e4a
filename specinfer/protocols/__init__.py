"""What must a model, a drafter, a verifier, a controller, a grammar backend or a tracker do to plug in?

Structural protocols: a plugin inherits from nothing. One module a role.
"""

from specinfer.protocols.controller import DraftController, EngineLoad, StepCost
from specinfer.protocols.grammar import (
    GRAMMAR_STATES,
    Bitmask,
    CompiledGrammar,
    ConstraintView,
    Enforcement,
    FormRows,
    GrammarBackend,
    GrammarKind,
    GrammarMatcher,
    GrammarSpec,
    TokenTable,
)
from specinfer.protocols.model import (
    AFTER_FINAL_NORM,
    CausalModel,
    HiddenStateModel,
    KVLayerSpec,
    LoadedModel,
    Tokenizer,
)
from specinfer.protocols.proposer import (
    DraftResources,
    KVClaim,
    Observation,
    Proposer,
    ProposerContext,
    RequestView,
)
from specinfer.protocols.randomness import DrawKey, Purpose, Randomness
from specinfer.protocols.tracker import Tracker
from specinfer.protocols.verifier import OutputLaw, TargetRows, Verdict, Verifier, VerifyItem

__all__ = [
    "AFTER_FINAL_NORM",
    "GRAMMAR_STATES",
    "Bitmask",
    "CausalModel",
    "CompiledGrammar",
    "ConstraintView",
    "DraftController",
    "DraftResources",
    "DrawKey",
    "Enforcement",
    "EngineLoad",
    "FormRows",
    "GrammarBackend",
    "GrammarKind",
    "GrammarMatcher",
    "GrammarSpec",
    "HiddenStateModel",
    "KVClaim",
    "KVLayerSpec",
    "LoadedModel",
    "Observation",
    "OutputLaw",
    "Proposer",
    "ProposerContext",
    "Purpose",
    "Randomness",
    "RequestView",
    "StepCost",
    "TargetRows",
    "TokenTable",
    "Tokenizer",
    "Tracker",
    "Verdict",
    "Verifier",
    "VerifyItem",
]
