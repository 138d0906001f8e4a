"""The page needs nothing but itself."""

from __future__ import annotations

import re
from typing import Any

from experiments.summary import DEFINITIONS
from tests.experiments.conftest import interrupted_at


def test_the_report_is_self_contained_and_complete(run_tiny: Any) -> None:
    record, folder, _ = run_tiny("run.name='<b>bold'")
    page = (folder / "report.html").read_text()
    assert page.count('src="data:image/png;base64,') == 3
    assert not re.search(r'(src|href)="(?!data:)', page) and "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "&lt;b&gt;bold" in page and "<b>bold" not in page
    for name in DEFINITIONS:
        assert f"<dt>{name}</dt>" in page
    for name in record.methods:
        assert f"method {name}" in page


def test_an_interrupted_run_says_so(run_tiny: Any) -> None:
    _, folder, _ = run_tiny("run.num_warmup=0", load=interrupted_at(60))
    assert "This run was interrupted" in (folder / "report.html").read_text()
