"""What does each grammar backend make of a JSON schema, and how many schemas does each enforce exactly?

    python -m experiments.audit schema.json          what each backend makes of each feature, and which one `auto` takes
    python -m experiments.audit schemas.jsonl        of many (JSONSchemaBench's format), how many each one has exactly
    python -m experiments.audit schema.json backends=xgrammar,llguidance

Nothing is compiled and no model is loaded: the answer is the table that the tests hold against instances. Always true:
the verdict is the one that a request under the strict policy meets. The exit status is 0 where every schema has a
backend that enforces it exactly, 1 where one has none, 2 for a mistake of the user's.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.complaint import one_line
from experiments.hydra_app import STATUS_MISTAKE
from specinfer import registry
from specinfer.config import StructuredConfig
from specinfer.errors import ConfigError, GrammarError
from specinfer.forms import StructuredOutputs
from specinfer.protocols import Enforcement, GrammarBackend
from specinfer.structured.audit import AuditReport, audit
from specinfer.structured.sources import schema_of
from specinfer.structured.specs import spec_of

if TYPE_CHECKING:
    from rich.table import Table

STATUS_INEXACT = 1
MAX_FEATURES = 10
"""Features that the table of many schemas names"""
STYLES = {
    Enforcement.EXACT: "green",
    Enforcement.NARROWED: "yellow",
    Enforcement.WIDENED: "red",
    Enforcement.REFUSED: "red",
}
Backends = Mapping[str, GrammarBackend]


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit the file that a command line names; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "--help"} & set(given):
        print(__doc__)
        return 0
    try:
        return _show(*_read(given))
    except Exception as error:
        complaint = one_line(error)
        if complaint is None:
            raise
        print(f"error: {complaint}", file=sys.stderr)
        return STATUS_MISTAKE


def _read(arguments: Sequence[str]) -> tuple[dict[str, Any], Backends, bool]:
    """The schemas by name, the backends, and whether it was one schema."""
    names = list(StructuredConfig().backends)
    paths = [argument for argument in arguments if "=" not in argument]
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key != "backends":
            raise ConfigError(f"there is no {key!r} here; there is backends=NAME,NAME")
        names = value.split(",") if equals else names
    if len(paths) != 1:
        raise ConfigError(f"name one file with a JSON schema, or a JSON Lines file of them; got {paths or 'none'}")
    backends = {name: registry.build("grammars", name) for name in names}
    path = Path(paths[0])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if path.suffix != ".jsonl":
        return {str(path): schema_of(_checked(text, str(path)))}, backends, True
    return dict(_line(line, f"{path} line {n}") for n, line in enumerate(text.splitlines(), start=1)), backends, False


def _line(line: str, place: str) -> tuple[str, Any]:
    """Name and schema of a line; a schema that no request may have is left as its error."""
    try:
        item = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place} is no JSON: {error}") from error
    if not isinstance(item, dict) or "schema" not in item:
        raise ConfigError(f"{place} has no schema")
    try:
        return str(item.get("id", place)), schema_of(_checked(json.dumps(item["schema"]), place))
    except GrammarError as error:
        return str(item.get("id", place)), error


def _checked(source: str, place: str) -> str:
    """The schema's source, found right as a request's would be."""
    try:
        return spec_of(StructuredOutputs(json=source), StructuredConfig().limits).source
    except GrammarError as error:
        raise GrammarError(f"{place}: {error}") from error


def _show(schemas: Mapping[str, Any], backends: Backends, is_one: bool) -> int:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    wrong = {name: schema for name, schema in schemas.items() if isinstance(schema, GrammarError)}
    reports = {
        name: [audit(schema, backend, name=backend_name) for backend_name, backend in backends.items()]
        for name, schema in schemas.items()
        if name not in wrong
    }
    if is_one:
        (one,) = reports.values()
        console.print(features_table(one))
        console.print(verdict(one))
    else:
        console.print(coverage_table(list(reports.values())))
        console.print(missing_table(list(reports.values())))
    for error in wrong.values():
        console.print(f"no request may have it: {error}")
    is_covered = not wrong and all(any(report.is_exact for report in found) for found in reports.values())
    return 0 if is_covered else STATUS_INEXACT


def features_table(reports: Sequence[AuditReport]) -> Table:
    """A row a feature with the places where the schema uses it, a column a backend."""
    from rich.table import Table

    table = Table("feature", "at", *(report.backend for report in reports))
    places: dict[str, list[str]] = {}
    for finding in reports[0].findings:
        places.setdefault(finding.feature, []).append(finding.pointer)
    for feature, pointers in places.items():
        cells = [next(f.enforcement for f in report.findings if f.feature == feature) for report in reports]
        more = f" and {len(pointers) - 1} more" if len(pointers) > 1 else ""
        table.add_row(feature, f"#{pointers[0]}{more}", *(f"[{STYLES[c]}]{c.value}" for c in cells))
    return table


def verdict(reports: Sequence[AuditReport]) -> str:
    """What a request with this schema meets."""
    exact = next((report.backend for report in reports if report.is_exact), None)
    if exact is not None:
        return f"auto takes {exact}, which enforces the schema exactly"
    best = min(reports, key=lambda report: report.badness)
    return (
        f"refused under policy=strict, as no backend enforces it exactly; under policy=warn auto takes {best.backend}: "
        + "; ".join(best.describe())
    )


def coverage_table(reports: Sequence[Sequence[AuditReport]]) -> Table:
    """A row a backend, and one for `auto`: of how many schemas it is exact, and what the worst is of the others."""
    from rich.table import Table

    table = Table("backend", *(enforcement.value for enforcement in Enforcement), "exact, of all")
    table.caption = "each schema counts by the worst that the backend does to it"
    for index, first in enumerate(reports[0] if reports else ()):
        worst = Counter(found[index].worst for found in reports)
        table.add_row(first.backend, *_counts(worst))
    table.add_row("auto", *_counts(Counter(min(found, key=lambda report: report.badness).worst for found in reports)))
    return table


def _counts(worst: Counter[Enforcement]) -> list[str]:
    return [*(str(worst[kind]) for kind in Enforcement), f"{worst[Enforcement.EXACT] / worst.total():.0%}"]


def missing_table(reports: Sequence[Sequence[AuditReport]]) -> Table:
    """What stands in the way most often: features by the number of schemas in which no backend, or this one, has them
    exactly.
    """
    from rich.table import Table

    names = [report.backend for report in reports[0]] if reports else []
    table = Table("feature not exact", *names, "any")
    table.caption = "schemas that use it"
    counts = [Counter(f for found in reports for f in {u.feature for u in found[i].unmet}) for i in range(len(names))]
    anywhere = Counter(
        feature
        for found in reports
        for feature in set[str].intersection(*({u.feature for u in report.unmet} for report in found))
    )
    order = sorted(sum(counts, Counter()), key=lambda feature: (-anywhere[feature], -sum(c[feature] for c in counts)))
    for feature in order[:MAX_FEATURES]:
        table.add_row(feature, *(str(count[feature]) for count in counts), str(anywhere[feature]))
    return table


if __name__ == "__main__":
    sys.exit(main())
