"""What must a model, a drafter, a verifier, a controller or a tracker do to plug in?

Structural protocols: a plugin inherits from nothing. One module a role.
"""

from specinfer.protocols.controller import DraftController, EngineLoad, StepCost
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
    "CausalModel",
    "DraftController",
    "DraftResources",
    "DrawKey",
    "EngineLoad",
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
    "Tokenizer",
    "Tracker",
    "Verdict",
    "Verifier",
    "VerifyItem",
]
