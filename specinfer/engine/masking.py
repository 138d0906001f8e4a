"""Which tokens does the form of each request allow at its rows of this step?

Always true: every row of a request with a form is written at every step, also where nothing changed; a grammar that
fails costs its request alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from specinfer.engine.request import Request
from specinfer.engine.scheduler import ScheduledRow
from specinfer.errors import GrammarError, RequestError
from specinfer.forms import IllegalDrafts
from specinfer.protocols import FormRows
from specinfer.structured.drafts import census, fitted
from specinfer.types import Draft


def form_rows(rows: Sequence[ScheduledRow]) -> list[FormRows | RequestError | None]:
    """The form's rows of each scheduled row that is sampled, None where there is no form."""
    return [_form_row(row) if row.is_sampled else None for row in rows]


def _form_row(row: ScheduledRow) -> FormRows | RequestError | None:
    constraint = row.request.constraint
    if constraint is None:
        return None
    try:
        return constraint.rows(row.draft)
    except Exception as error:  # whatever a foreign matcher raises
        place = row.request.num_output_tokens
        return GrammarError(f"the grammar failed at output token {place}: {type(error).__name__}: {error}")


def fit_draft(request: Request, draft: Draft, policy: IllegalDrafts) -> Draft | None:
    """A proposed draft as the request's form leaves it."""
    if request.constraint is None:
        return draft
    rows = request.constraint.rows(draft)
    request.draft_census = census(draft, rows)
    return fitted(draft, rows, policy)
