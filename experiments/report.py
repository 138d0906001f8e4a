"""What does a run look like to somebody who was not there?

One HTML page with the table, the plots, what went wrong, the definitions and the whole configuration. Always true: it
needs no network and no other file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.distortion import COLUMNS as FORM_COLUMNS
from experiments.distortion import form_rows
from experiments.grammar_states import COLUMNS as STATE_COLUMNS
from experiments.grammar_states import states_rows
from experiments.summary import DEFINITIONS
from experiments.table import COLUMNS, OVERALL, table_rows

if TYPE_CHECKING:
    from experiments.record import RunRecord

CAPTIONS = {
    "speedup_by_task": "Tokens/s of each method over tokens/s of plain decoding on the same requests; the lines are "
    "95% bootstrap intervals over questions.",
    "acceptance_by_position": "Left, U: the share of steps with a draft in which this draft token and all before it "
    "were accepted. Right, C: the share among the steps in which all before it were.",
    "acceptance_by_grammar_state": "Conditional acceptance of the next draft token by what the form makes of its "
    "position: forced (one token is legal), enum, key, free string, number, boundary.",
    "time_split": "Time of all steps, prefill included, by part, divided by the number of output tokens.",
}


def render(record: RunRecord, plots: Sequence[Path]) -> str:
    """The page; images are inlined."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    images = [
        {
            "name": path.stem,
            "data": base64.b64encode(path.read_bytes()).decode(),
            "caption": CAPTIONS.get(path.stem, ""),
        }
        for path in plots
    ]
    return environment.get_template("report.html.j2").render(
        record=record,
        columns=COLUMNS,
        rows=table_rows(record.overall, record.tasks),
        overall=OVERALL,
        state_columns=STATE_COLUMNS,
        state_rows=states_rows(record.grammar_states),
        form_columns=list(FORM_COLUMNS.values()),
        form_rows=form_rows(record.forms),
        images=images,
        definitions=DEFINITIONS,
        methods={name: json.dumps(described, indent=1) for name, described in record.methods.items()},
        config=json.dumps(record.config, indent=1),
        environment=json.dumps(record.environment, indent=1),
    )
