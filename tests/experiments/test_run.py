"""The command: one folder a run, one line a mistake, and what was done is kept."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from experiments import hydra_app, run
from experiments.hydra_app import FULL_ERROR
from specinfer.errors import ConfigError, SpecinferError
from specinfer.metrics import table
from specinfer.protocols import LoadedModel
from tests.experiments.conftest import interrupted_at, load_tiny


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run a command line in an empty folder: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["run"])
    monkeypatch.setattr("specinfer.models.loading.load_model", load_tiny)
    monkeypatch.delenv(FULL_ERROR, raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run.main([*(a for a in arguments if a == "-m"), *tiny_overrides, *(a for a in arguments if a != "-m")])
        return status, *capsys.readouterr()

    return call


# ------------------------------------------------------------------------------------------------- the folder


def test_a_run_leaves_one_complete_folder(command: Any, tmp_path: Path) -> None:
    status, out, _ = command("run.name=try")
    assert status == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_try")
    files = {path.name for path in folder.iterdir()}
    assert files >= {"events.parquet", "results.parquet", "results.csv", "summary.json", "report.html", "metrics.jsonl"}
    assert files >= {"speedup_by_task.png", "acceptance_by_position.png", "time_split.png", "table.svg"}
    assert not any(name.endswith(".part") for name in files)
    assert "overall" in out and "yes, all" in out and str(folder.name) in out


def test_the_summary_says_what_was_run_and_that_outputs_are_equal(run_tiny: Any) -> None:
    _, folder, _ = run_tiny()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["schema_version"] == 1 and summary["interrupted"] is False
    ngram = summary["overall"]["ngram"]
    assert ngram["num_different"] == 0 and ngram["num_equal"] == ngram["num_requests"] == 4
    # Not vacuous: drafts were made, some stood and some fell.
    assert 0 < ngram["figures"]["draft_efficiency"]["value"] < 1
    assert set(summary["tasks"]) == {"chat", "maths"}
    assert summary["config"]["sampling"]["max_tokens"] == 24
    assert summary["methods"]["ngram"]["proposer"]["num_draft_tokens"] == 4
    assert {"python", "packages", "cpu", "num_threads", "git"} <= set(summary["environment"])
    assert set(ngram["figures"]) <= set(summary["definitions"])


def test_events_and_results_agree_on_every_emitted_token(run_tiny: Any) -> None:
    record, folder, _ = run_tiny("run.repeats=2", "run.batch_size=2")
    results = pl.read_parquet(folder / "results.parquet")
    assert len(results) == 2 * 2 * 4
    assert results["emitted"].to_list() == results["num_output_tokens"].to_list()
    assert pl.read_csv(folder / "results.csv").columns == results.columns
    events = table.read(folder / "events.parquet")
    assert set(events["method"]) == {"plain", "ngram"} and set(events["repeat"]) == {0, 1}
    assert events.filter(method="plain")["draft_token_ids"].list.len().sum() == 0
    assert max(events["batch_size"]) == 2
    assert record.overall["ngram"].num_different == 0


def test_a_folder_with_a_run_is_never_written_over(run_tiny: Any, compose: Any, tiny_overrides: list[str]) -> None:
    _, folder, _ = run_tiny()
    before = (folder / "summary.json").read_bytes()
    with pytest.raises(ConfigError, match="already holds a run"):
        run.execute(compose(*tiny_overrides), folder, console=None, load=load_tiny)  # type: ignore[arg-type]
    assert (folder / "summary.json").read_bytes() == before


def test_random_sampling_is_measured_and_not_compared(run_tiny: Any) -> None:
    record, _, printed = run_tiny("sampling=creative", "sampling.max_tokens=24")
    assert record.overall["ngram"].num_equal == record.overall["ngram"].num_different == 0
    assert record.overall["ngram"].speedup is not None
    assert "not greedy" in printed


def test_a_wrong_verifier_is_caught_and_shown(run_tiny: Any) -> None:
    record, folder, printed = run_tiny("+compare.wrong.verifier='tests.experiments.foreign:AcceptAll'")
    assert record.overall["ngram"].num_different == 0
    name = next(name for name in record.overall if name.startswith("wrong"))
    assert "lossy" in name, "a verifier that is not exact is marked wherever its method is named"
    assert record.overall[name].num_different > 0
    difference = record.differences[0]
    assert difference.method == name and difference.plain_token_id != difference.token_id
    assert difference.top2_margin is not None and difference.top2_margin > 0
    assert not difference.is_tie, "a wrong token is not rounding"
    assert "different: wrong" in printed and "NOT explained by rounding" in printed
    assert "Answers that differ" in (folder / "report.html").read_text()


def test_a_prompt_that_does_not_fit_is_reported_and_left_out(run_tiny: Any, workload_file: Path) -> None:
    long = {"question_id": 9, "category": "chat", "turns": ["x" * 500, "never asked"]}
    workload_file.write_text(workload_file.read_text() + json.dumps(long) + "\n")
    record, _, printed = run_tiny("run.batch_size=4")
    assert {(f["method"], f["question_id"], f["turn"]) for f in record.failures} == {
        ("plain", "9", 0),
        ("ngram", "9", 0),
    }
    assert "left out: chat 9" in printed
    assert record.overall["plain"].num_requests == 4


def test_a_tracker_that_fails_warns_and_the_run_goes_on(run_tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _, folder, _ = run_tiny("tracker='tests.experiments.foreign:FullDisk'")
    assert [r.getMessage() for r in caplog.records if "FullDisk" in r.getMessage()] == [
        "tracker FullDisk failed in start and is left out from here on: OSError: no space left"
    ]
    kinds = [json.loads(line)["kind"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert kinds[0] == "start" and kinds[-2:] == ["summary", "finish"] and kinds.count("log") == 4


# ------------------------------------------------------------------------------------------------ interruption


def test_what_was_done_before_an_interruption_is_kept_and_paired(run_tiny: Any) -> None:
    record, folder, printed = run_tiny("run.num_warmup=0", load=interrupted_at(60))
    assert json.loads((folder / "summary.json").read_text())["interrupted"] is True
    assert 0 < record.overall["plain"].num_requests < 4
    assert record.overall["plain"].num_requests == record.overall["ngram"].num_requests
    assert "interrupted" in printed and (folder / "report.html").exists()


def test_an_interruption_before_any_answer_leaves_no_summary(run_tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_tiny(load=interrupted_at(3))
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_run_in_which_nothing_could_be_served_is_a_mistake(command: Any) -> None:
    status, _, err = command("model.cache.num_blocks=1")
    assert status == hydra_app.STATUS_MISTAKE
    assert "no request could be served" in err and "KV cache" in err


def test_an_interrupted_command_ends_with_its_own_status(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specinfer.models.loading.load_model", interrupted_at(100))
    status, _, err = command()
    assert status == hydra_app.STATUS_INTERRUPTED
    assert err == "interrupted\n"


# ---------------------------------------------------------------------------------------------------- mistakes

MISTAKES = {
    "proposer.num_draft_tokns=3": "proposer.num_draft_tokns: there is no 'num_draft_tokns' here; "
    "did you mean 'num_draft_tokens'?",
    "proposer.num_draft_tokens=many": "proposer.num_draft_tokens: Value 'many' of type 'str' could not be converted",
    "proposer.num_draft_tokens=-1": "proposer: ngram.num_draft_tokens must be an integer of at least 0, got -1",
    "sampling.temperature=-1": "sampling: temperature must be in [0.0, 100.0], got -1.0",
    "sampling.temperature=nan": "sampling: temperature must be in [0.0, 100.0], got nan",
    "proposer=ngrm": "Could not find 'proposer/ngrm' Available options in 'proposer': best_of",
    "experiment=dmo": "Could not find 'experiment/dmo'",
    "proposer=no.module:Class": "proposer 'no.module:Class' failed to import: ModuleNotFoundError",
    "run.repeats=0": "run: run.repeats must be at least 1, got 0",
    "run.name=a/b": "run.name is part of a folder's name",
    "sampling.n=2": "sampling.n must be 1 in a comparison, got 2",
    "model.record_events=false": "model.record_events must be true",
    "model.cache.block_size=0": "cache.block_size must be an integer of at least 1, got 0",
    "workload.categories=[poetry]": "workload.categories: no poetry in questions.jsonl; it has chat, maths",
    "workload.path=nowhere.jsonl": "workload.path='nowhere.jsonl' cannot be read",
    "repeats=3": "repeats: there is no 'repeats' here",
    "proposer=[": "proposer=[: ",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_one_line_on_stderr_and_no_run(override: str, command: Any, tmp_path: Path) -> None:
    status, out, err = command(override)
    assert status == hydra_app.STATUS_MISTAKE
    assert err.count("\n") == 1 and err.startswith("error: ")
    assert MISTAKES[override] in err
    assert "Traceback" not in err + out
    assert not list(tmp_path.glob("runs/*/summary.json"))


def test_a_full_traceback_is_there_for_the_asking(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FULL_ERROR, "1")
    with pytest.raises(Exception, match=r"num_draft_tokens must be") as caught:
        command("proposer.num_draft_tokens=-1")
    assert isinstance(caught.value.__cause__, SpecinferError)


def test_a_fault_of_ours_keeps_its_traceback(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_config: Any) -> LoadedModel:
        raise ZeroDivisionError("not the user's")

    monkeypatch.setattr("specinfer.models.loading.load_model", broken)
    with pytest.raises(ZeroDivisionError):
        command()


# ------------------------------------------------------------------------------------------------------ sweeps


def test_a_sweep_is_a_complete_run_for_each_value(command: Any, tmp_path: Path) -> None:
    status, _, _ = command(
        "-m", "proposer=ngram,'tests.experiments.foreign:RepeatLast'", "proposer.num_draft_tokens=1,3"
    )
    assert status == 0
    (folder,) = (tmp_path / "runs").iterdir()
    found = {}
    for path in sorted(folder.glob("*/summary.json")):
        summary = json.loads(path.read_text())
        name = next(name for name in summary["methods"] if name != "plain")
        found[path.parent.name] = (name, summary["methods"][name]["proposer"]["num_draft_tokens"])
        assert summary["overall"][name]["num_different"] == 0
    assert found == {"0": ("ngram", 1), "1": ("ngram", 3), "2": ("RepeatLast", 1), "3": ("RepeatLast", 3)}


def test_a_bad_value_in_a_sweep_is_one_line_too(command: Any) -> None:
    status, _, err = command("-m", "proposer.num_draft_tokens=1,-1")
    assert status == hydra_app.STATUS_MISTAKE
    assert err.count("\n") == 1 and "got -1" in err
