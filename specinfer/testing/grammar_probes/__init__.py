"""Which schemas and texts show what a backend makes of each feature of JSON Schema?"""

from specinfer.testing.grammar_probes.arrays import ARRAYS
from specinfer.testing.grammar_probes.combinations import COMBINATIONS
from specinfer.testing.grammar_probes.numbers import NUMBERS
from specinfer.testing.grammar_probes.objects import OBJECTS
from specinfer.testing.grammar_probes.probe import Probe
from specinfer.testing.grammar_probes.strings import STRINGS
from specinfer.testing.grammar_probes.values import VALUES

PROBES: dict[str, list[Probe]] = {**VALUES, **STRINGS, **NUMBERS, **ARRAYS, **OBJECTS, **COMBINATIONS}
"""Each feature of specinfer.structured.features with its probes; what is not here is not known to be exact anywhere"""

__all__ = ["PROBES", "Probe"]
