"""What breaks engines that constrain outputs and speculate: each situation, and what happens here."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from proposers.forced import ForcedProposer
from specinfer import LLM, Draft, EngineConfig, FinishReason, IllegalDrafts, SamplingParams, StructuredOutputs, registry
from specinfer.config import CacheConfig, SchedulerConfig, StructuredConfig
from specinfer.engine.forming import token_table
from specinfer.forms import AuditPolicy
from specinfer.metrics import table
from specinfer.metrics.grammar import ALL_STATES, by_grammar_state
from specinfer.models.loading import _eos_token_ids
from specinfer.protocols import CompiledGrammar, LoadedModel, Randomness
from specinfer.structured.manager import GrammarManager
from specinfer.testing import (
    ByteTokenizer,
    ScriptedProposer,
    TinyModel,
    assert_same_law,
    echo_script,
    output_law,
    tiny_loaded_model,
)
from specinfer.testing.grammars import WordsBackend, WordsGrammar, WordsMatcher
from specinfer.types import RequestOutput
from tests.engine.test_trees import TreeProposer
from tests.proposers import zoo

BOS, EOS = 256, 257
CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=200), structured=StructuredConfig(isolate=False))
BACKENDS = registry.names("grammars")
EXACT_BACKENDS = [name for name in BACKENDS if name != "outlines"]
"""Those that read every kind of form"""


@dataclass
class Saying(TinyModel):
    """Prefers to say `text` behind a prompt of one token, then to say `ever` for good, however often it is stopped."""

    vocab_size: int = 258
    text: str = ""
    ever: Sequence[int] = (ord("z"),)
    strength: float = 30.0

    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        logits = super().logits(token_ids)
        position, text = len(token_ids) - 1, self.text.encode()
        liked = [text[position]] if position < len(text) else self.ever
        for rank, token_id in enumerate(liked):
            logits[token_id] += self.strength - rank
        return logits


def saying(text: str = "", **fields: Any) -> LoadedModel:
    model = Saying(text=text, **fields)
    return LoadedModel(model, ByteTokenizer(model.vocab_size), frozenset({EOS}))


@cache
def rambling() -> LoadedModel:
    """With a short memory, so that n-grams match."""
    return tiny_loaded_model(vocab_size=258, eos_token_id=EOS, max_model_len=200, order=1)


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarManager]:
    """For all models of 258 tokens."""
    manager = GrammarManager(CONFIG.structured, lambda: token_table(rambling()))
    yield manager
    manager.close()


Run = Callable[..., list[RequestOutput]]


@pytest.fixture
def run(grammars: GrammarManager) -> Run:
    """Generate behind prompts of one token, with the engine checked afterwards."""

    def generate(
        params: SamplingParams | Sequence[SamplingParams],
        proposer: Any = None,
        *,
        loaded: LoadedModel | None = None,
        config: EngineConfig = CONFIG,
        policy: IllegalDrafts = IllegalDrafts.KEEP,
        shared: bool = True,
        prompts: Sequence[Sequence[int]] | None = None,
    ) -> list[RequestOutput]:
        batch = [params] if isinstance(params, SamplingParams) else list(params)
        config = replace(config, structured=replace(config.structured, illegal_drafts=policy))
        llm = LLM(config, proposer, loaded_model=loaded or rambling(), grammars=grammars if shared else None)
        outputs = llm.generate(prompts or [[65 + i] for i in range(len(batch))], batch)
        llm.engine.check_integrity()
        return outputs

    return generate


def tokens(output: RequestOutput) -> list[int]:
    return output.outputs[0].token_ids


def greedy(form: StructuredOutputs | None, max_tokens: int = 40, **fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, structured_outputs=form, **fields)


RECORD = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"enum": ["yes", "no", None]}},
    "required": ["id", "ok"],
    "additionalProperties": False,
}
SUMS = 'root ::= term "+" term\nterm ::= [0-9]{2} | "(" root ")"'


def is_record(text: str) -> bool:
    value = json.loads(text)
    return set(value) == {"id", "ok"} and type(value["id"]) is int and value["ok"] in {"yes", "no", None}


@dataclass(frozen=True)
class Kind:
    """A kind of form, with a judge of whole texts that knows no grammars."""

    form: StructuredOutputs
    is_whole: Callable[[str], bool]
    likes: str
    """What a model may like to say in it"""


def _regex(pattern: str, likes: str) -> Kind:
    return Kind(StructuredOutputs(regex=pattern), lambda text: bool(re.fullmatch(pattern, text)), likes)


def _is_sum(text: str) -> bool:
    while (shorter := re.sub(r"\(\d\d\+\d\d\)", "11", text)) != text:
        text = shorter
    return bool(re.fullmatch(r"\d\d\+\d\d", text))


KINDS = {
    "regex": _regex("(?:ab|c)+d[0-9]{2}", "ababcd12"),
    "regex that may be empty": _regex("(?:xy)?", "xy"),
    "choice": Kind(StructuredOutputs(choice=["a", "ab", "é😀"]), {"a", "ab", "é😀"}.__contains__, "ab"),
    "EBNF": Kind(StructuredOutputs(grammar=SUMS), _is_sum, "12+(34+56)"),
    "JSON": Kind(
        StructuredOutputs(json=RECORD, policy=AuditPolicy.ALLOW, max_whitespace=1), is_record, '{"id":7,"ok":null}'
    ),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


# ----------------------------------------------------------------------------------------------- illegal drafts


def misguided(wanted: Sequence[int], wrong: int, every: int) -> Callable[[list[int], int], list[int]]:
    """Drafts the right continuation behind a prompt of one token, but for a wrong token at some places."""

    def script(so_far: list[int], length: int) -> list[int]:
        places = range(len(so_far) - 1, min(len(so_far) - 1 + length, len(wanted)))
        return [wrong if place % every == every - 1 else wanted[place] for place in places]

    return script


def with_law(script: Callable[[list[int], int], list[int]]) -> TreeProposer:
    """Drafts a chain as if drawn from a law that gives its token a half."""

    def guess(so_far: list[int]) -> Draft:
        token_ids = script(so_far, 5)
        probs = torch.full((len(token_ids), 258), 0.5 / 258, dtype=torch.float64)
        for row, token_id in enumerate(token_ids):
            probs[row, token_id] += 0.5
        return Draft(token_ids, probs) if token_ids else Draft([])

    return TreeProposer(guess)


def branching(script: Callable[[list[int], int], list[int]]) -> TreeProposer:
    """Drafts a chain with a wrong sibling before each node, and a child of that."""

    def guess(so_far: list[int]) -> Draft:
        token_ids: list[int] = []
        parents: list[int] = []
        parent = -1
        for token_id in script(so_far, 5):
            first = len(token_ids)
            token_ids += [0, token_id, token_id]
            parents += [parent, first, parent]
            parent = first + 2
        return Draft(token_ids, parents=parents)

    return TreeProposer(guess)


DRAFTS: dict[str, Callable[[Callable[[list[int], int], list[int]]], Any]] = {
    "one-hot": lambda script: ScriptedProposer(script, num_draft_tokens=5),
    "with a law": with_law,
    "tree": branching,
}
WRONG = {"an illegal byte": 1, "an end": EOS, "a special token": BOS, "half a character": 0xC3}


@EVERY_KIND
@pytest.mark.parametrize("policy", IllegalDrafts)
@pytest.mark.parametrize("drafts", DRAFTS)
@pytest.mark.parametrize("wrong", WRONG)
def test_an_illegal_draft_token_is_rejected_and_the_output_is_as_without_drafts(
    wrong: str, drafts: str, policy: IllegalDrafts, kind: Kind, run: Run
) -> None:
    loaded = saying(kind.likes)
    plain = run(greedy(kind.form), loaded=loaded)[0]
    assert kind.is_whole(plain.outputs[0].text) and plain.outputs[0].finish_reason is FinishReason.STOP
    for every in (1, 2, 3):
        proposer = DRAFTS[drafts](misguided(tokens(plain), WRONG[wrong], every))
        output = run(greedy(kind.form), proposer, loaded=loaded, policy=policy)[0]
        assert output.error is None and output.draft_error is None
        assert output.outputs[0] == plain.outputs[0]
        if every > 1 and len(tokens(plain)) > 4:
            assert output.stats.num_accepted_tokens > 0, "nothing was ever accepted"


@EVERY_KIND
@pytest.mark.parametrize("backend", BACKENDS)
def test_sampled_outputs_have_the_form_with_and_without_drafts(backend: str, kind: Kind, run: Run) -> None:
    form = replace(kind.form, backend=backend)
    if backend not in EXACT_BACKENDS and form.grammar is not None:
        pytest.skip("it reads no EBNF")
    params = [SamplingParams(max_tokens=60, seed=seed, structured_outputs=form) for seed in range(4)]
    for proposer in (None, "ngram", "forced", "filtered"):
        for output in run(params, proposer):
            completion = output.outputs[0]
            assert output.error is None and output.draft_error is None
            if completion.finish_reason is FinishReason.STOP:
                assert kind.is_whole(completion.text), completion.text
            else:
                assert completion.finish_reason is FinishReason.LENGTH and len(completion.token_ids) == 60


@pytest.mark.parametrize("num_known", range(3))
@pytest.mark.parametrize("policy", IllegalDrafts)
def test_a_window_with_unknown_drafts_is_no_draft_and_every_row_stays_masked(
    policy: IllegalDrafts, num_known: int, run: Run
) -> None:
    kind = KINDS["regex"]
    plain = run(greedy(kind.form), loaded=saying("zzzz"))[0]
    proposer = ScriptedProposer(lambda so_far, length: [*[ord("a"), ord("b")][:num_known], -1, -1])
    output = run(greedy(kind.form), proposer, loaded=saying("zzzz"), policy=policy)[0]
    assert output.outputs[0] == plain.outputs[0] and kind.is_whole(output.outputs[0].text)
    assert "leave the vocabulary" in str(output.draft_error)


LETTERS = StructuredOutputs(regex="(?:a|bc?|d(?:e|f){2})*g")


@cache
def small(vocab_size: int = 8) -> LoadedModel:
    return replace(zoo.target(vocab_size), eos_token_ids=frozenset({7}))


@cache
def small_grammars() -> GrammarManager:
    return GrammarManager(CONFIG.structured, lambda: token_table(small()))


def small_outputs(proposer: Any, config: EngineConfig = CONFIG) -> list[RequestOutput]:
    llm = LLM(config, proposer, loaded_model=small(), grammars=small_grammars())
    params = [greedy(LETTERS, 24), greedy(None, 24), greedy(StructuredOutputs(regex="[abc]{9}"), 24)]
    outputs = llm.generate([[0, 1, 2, 0, 1, 2], [3, 1, 3, 1], [6, 1, 2, 6, 1]], params)
    llm.engine.check_integrity()
    return outputs


@pytest.mark.parametrize("variant", zoo.VARIANTS, ids=str)
def test_greedy_output_is_the_same_with_every_proposer(
    variant: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specinfer.llm._load", lambda config: zoo.load_draft_model(8))
    wanted = [tokens(output) for output in small_outputs(None)]
    outputs = small_outputs(zoo.make(*variant, vocab_size=8, num_draft_tokens=4))
    assert [tokens(output) for output in outputs] == wanted
    assert all(output.error is None and output.draft_error is None for output in outputs)
    if variant[0] not in {"none", "prompt_ahead"}:
        assert sum(output.stats.num_draft_tokens for output in outputs) > 0, "nothing was drafted"


# ------------------------------------------------------------------------------------------------------- ends


@EVERY_KIND
@pytest.mark.parametrize("ignore_eos", [False, True])
@pytest.mark.parametrize("proposer", [None, "ngram", "forced"])
def test_behind_a_whole_text_only_an_end_comes_whatever_the_model_prefers(
    proposer: str | None, ignore_eos: bool, kind: Kind, run: Run
) -> None:
    loaded = saying(kind.likes, ever=list(b'a1}"z \n'), strength=60.0)
    completion = run(greedy(kind.form, ignore_eos=ignore_eos), proposer, loaded=loaded)[0].outputs[0]
    assert completion.finish_reason is FinishReason.STOP and completion.token_ids[-1] == EOS
    assert kind.is_whole(completion.text) and completion.text == kind.likes


@pytest.mark.parametrize("proposer", [None, "ngram", "forced"])
def test_a_model_without_an_end_stops_where_nothing_can_follow(proposer: str | None, run: Run) -> None:
    loaded = replace(saying("ab"), eos_token_ids=frozenset())
    for choice, text in ((["abc", "abd"], "abc"), (["xyz"], "xyz")):
        form = StructuredOutputs(choice=choice)
        completion = run(greedy(form), proposer, loaded=loaded, shared=False)[0].outputs[0]
        assert completion.finish_reason is FinishReason.STOP
        assert completion.text in choice and completion.text[:2] == text[:2]


@pytest.mark.parametrize("stop_id", [BOS, ord("b")])
def test_a_stop_token_is_an_end_where_the_text_is_whole_and_no_end_elsewhere(stop_id: int, run: Run) -> None:
    loaded = saying("", ever=[stop_id])
    form = StructuredOutputs(regex="a{3}")
    for proposer in (None, "forced"):
        output = run(greedy(form, stop_token_ids=[stop_id]), proposer, loaded=loaded)[0]
        assert output.error is None
        assert tokens(output) == [*b"aaa", stop_id] and output.outputs[0].stop_reason == stop_id


@pytest.mark.parametrize("length", range(1, 7))
@pytest.mark.parametrize("tail", [[], [EOS], [ord("b")], [EOS, ord("a"), EOS]], ids=str)
def test_a_draft_that_goes_on_behind_an_end_is_cut_there(
    length: int, tail: list[int], grammars: GrammarManager
) -> None:
    """And the words matcher, which fails when it is asked about an end, is not."""
    form = StructuredOutputs(regex="abc", backend="specinfer.testing.grammars:WordsBackend")
    script = misguided([*b"abc", EOS, *tail], 0, 99)
    llm = LLM(CONFIG, ScriptedProposer(script, num_draft_tokens=length), loaded_model=saying("abc"))
    output = llm.generate([[65]], greedy(form))[0]
    assert output.error is None and output.draft_error is None and tokens(output) == [*b"abc", EOS]
    for event in llm.events:
        assert EOS not in event.draft_token_ids[:-1]
    llm.grammars.close()


def test_a_drafted_end_counts_as_accepted_like_any_token(run: Run, grammars: GrammarManager) -> None:
    llm = LLM(CONFIG, "forced", loaded_model=rambling(), grammars=grammars)
    output = llm.generate([[65]], greedy(StructuredOutputs(choice=["abc"])))[0]
    assert tokens(output) == [*b"abc", EOS]
    drafted = [event for event in llm.events if event.draft_token_ids]
    assert drafted and all(event.num_accepted == len(event.draft_token_ids) for event in drafted)
    sampled = [event for event in llm.events if event.next_token_id is not None]
    assert all(event.num_emitted + event.num_cut == event.num_accepted + 1 for event in sampled)
    figures = by_grammar_state(table.from_events(llm.events))
    assert figures["forced"].acceptance == 1.0
    assert figures["forced"].num_rows == figures[ALL_STATES].num_rows == sum(e.num_emitted for e in drafted)


def test_an_end_that_only_the_tokenizer_knows_ends_a_form() -> None:
    model = SimpleNamespace(generation_config=None, config=SimpleNamespace(eos_token_id=None))
    ends = _eos_token_ids(model, SimpleNamespace(eos_token_id=3))
    assert ends == {3}
    loaded = replace(tiny_loaded_model(vocab_size=8, max_model_len=64), eos_token_ids=ends)
    llm = LLM(CONFIG, loaded_model=loaded)
    completion = llm.generate([[1]], greedy(StructuredOutputs(regex="ab?")))[0].outputs[0]
    assert completion.finish_reason is FinishReason.STOP and completion.token_ids[-1] == 3
    llm.grammars.close()


def test_a_length_that_ends_first_leaves_a_beginning_of_the_form(run: Run) -> None:
    whole = tokens(run(greedy(KINDS["EBNF"].form), loaded=saying("12+34"))[0])
    for max_tokens in range(1, len(whole) + 1):
        output = run(greedy(KINDS["EBNF"].form, max_tokens), "forced", loaded=saying("12+34"))[0]
        assert tokens(output) == whole[:max_tokens]
        assert (output.outputs[0].finish_reason is FinishReason.STOP) == (max_tokens == len(whole))


# ------------------------------------------------------------------------------------------------- reasoning


@pytest.mark.parametrize("length", range(9))
@pytest.mark.parametrize("drafts", DRAFTS)
def test_a_marker_within_a_draft_constrains_what_is_behind_it(length: int, drafts: str, run: Run) -> None:
    form = StructuredOutputs(regex="[0-9]{3}", reasoning_end="</t>")
    says = "h<m</t>aaaa"
    loaded = saying(says)
    plain = run(greedy(form), loaded=loaded)[0]
    assert re.fullmatch(r"h<m</t>[0-9]{3}", plain.outputs[0].text)

    def script(so_far: list[int], most: int) -> list[int]:
        return list(says.encode()[len(so_far) - 1 :][: min(most, length)])

    output = run(greedy(form), DRAFTS[drafts](script), loaded=loaded)[0]
    assert output.error is None and output.draft_error is None
    assert output.outputs[0] == plain.outputs[0]


@pytest.mark.parametrize("proposer", [None, "ngram", "forced", "filtered"])
def test_before_the_marker_the_output_is_free_but_does_not_end(proposer: str | None, run: Run) -> None:
    form = StructuredOutputs(regex="[0-9]{3}", reasoning_end="</t>")
    output = run(greedy(form, 20), proposer, loaded=saying("<b>", ever=[EOS, ord("q")]))[0]
    assert output.outputs[0].text == "<b>" + "q" * 17 and output.outputs[0].finish_reason is FinishReason.LENGTH


# --------------------------------------------------------------------------------------------------- batches


MIXED: list[StructuredOutputs | None] = [None, KINDS["regex"].form, None, KINDS["EBNF"].form]
TIGHT = replace(CONFIG, scheduler=SchedulerConfig(max_num_batched_tokens=6, max_num_seqs=3))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("proposer", [None, "ngram", "forced"])
@pytest.mark.parametrize("config", [CONFIG, TIGHT], ids=["roomy", "tight"])
def test_free_and_constrained_requests_are_as_alone_in_every_order(
    config: EngineConfig, proposer: str | None, temperature: float, run: Run
) -> None:
    params = [
        SamplingParams(temperature=temperature, seed=seed, max_tokens=12, structured_outputs=form)
        for seed, form in enumerate(MIXED)
    ]
    prompts = [[65 + i] * 3 for i in range(4)]
    alone = [tokens(run(p, prompts=[prompt])[0]) for p, prompt in zip(params, prompts, strict=True)]
    for order in itertools.permutations(range(4)):
        outputs = run([params[i] for i in order], proposer, config=config, prompts=[prompts[i] for i in order])
        assert [tokens(output) for output in outputs] == [alone[i] for i in order]


def test_the_completions_of_one_request_have_a_form_each(run: Run) -> None:
    kind = KINDS["EBNF"]
    params = SamplingParams(n=5, seed=3, max_tokens=60, structured_outputs=kind.form)
    texts = [c.text for c in run(params, "forced")[0].outputs if c.finish_reason is FinishReason.STOP]
    assert len(set(texts)) > 1 and all(kind.is_whole(text) for text in texts)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("proposer", [None, "ngram", "forced"])
def test_a_preempted_output_goes_on_where_its_form_was(proposer: str | None, temperature: float, run: Run) -> None:
    form = StructuredOutputs(regex="(?:[ab]{3}[0-9]{2}){5}")
    params = [
        SamplingParams(temperature=temperature, seed=n, max_tokens=30, structured_outputs=None if n == 1 else form)
        for n in range(4)
    ]
    roomy = run(params)
    scarce = run(params, proposer, config=replace(CONFIG, cache=CacheConfig(block_size=4, num_blocks=12)))
    assert sum(output.stats.num_preemptions for output in scarce) > 0
    assert [output.outputs[0] for output in scarce] == [output.outputs[0] for output in roomy]


# -------------------------------------------------------------------------------------- whitespace, special ids


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("max_whitespace", range(3))
@pytest.mark.parametrize("proposer", [None, "forced"])
def test_a_model_that_loves_whitespace_writes_no_more_than_is_allowed(
    proposer: str | None, max_whitespace: int, backend: str, run: Run
) -> None:
    form = replace(KINDS["JSON"].form, max_whitespace=max_whitespace, backend=backend)
    output = run(greedy(form, 80), proposer, loaded=saying("", ever=list(b" \n\t0")))[0]
    text = output.outputs[0].text
    assert output.error is None and output.outputs[0].finish_reason is FinishReason.STOP and is_record(text), text
    longest = max(map(len, re.findall(r"[ \n\t]*", text)))
    assert longest == max_whitespace, text


@pytest.mark.parametrize("loved", [BOS, EOS], ids=["special", "end"])
@pytest.mark.parametrize("drafts", [None, *DRAFTS])
def test_a_special_token_is_not_emitted_within_a_text(drafts: str | None, loved: int, run: Run) -> None:
    """Its spelling may be part of a string, the token is not."""
    form = StructuredOutputs(regex='"[^"]{2,12}"')
    loaded = saying('"<256>"', ever=[loved])
    proposer = None if drafts is None else DRAFTS[drafts](lambda so_far, length: [loved] * min(length, 3))
    output = run(greedy(form), proposer, loaded=loaded)[0]
    assert output.error is None and output.draft_error is None
    assert BOS not in tokens(output) and tokens(output).index(EOS) == len(tokens(output)) - 1
    assert output.outputs[0].text == '"<256>"'


# -------------------------------------------------------------------------------------------------- dead ends


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", [0, 1, 3, 8])
def test_a_dead_end_ends_its_request_alone_and_names_the_position(
    length: int, temperature: float, position: int, backend: str
) -> None:
    """The vocabulary has the letters a to h only."""
    loaded = tiny_loaded_model(vocab_size=8, eos_token_id=7, max_model_len=64, order=2)
    form = StructuredOutputs(regex=f"a{{{position}}}z", backend=backend)
    fine = StructuredOutputs(regex="[abc]{6}", backend=backend)
    llm = LLM(CONFIG, ScriptedProposer(lambda so_far, most: [0] * min(length, most)), loaded_model=loaded)
    params = [
        SamplingParams(temperature=temperature, seed=seed, max_tokens=12, structured_outputs=wanted)
        for seed, wanted in enumerate([fine, form, None])
    ]
    outputs = llm.generate([[1], [2], [3]], params, return_errors=True)
    llm.engine.check_integrity()
    assert f"the grammar cannot go on at output token {position}:" in str(outputs[1].error)
    assert tokens(outputs[1]) == [0] * position and outputs[1].outputs[0].finish_reason is FinishReason.ERROR
    assert re.fullmatch("[abc]{6}", outputs[0].outputs[0].text.rstrip("h"))
    plain = LLM(CONFIG, loaded_model=loaded).generate([[3]], params[2])[0]
    assert tokens(outputs[2]) == tokens(plain) and outputs[0].error is outputs[2].error is None
    llm.grammars.close()


@pytest.mark.parametrize(
    "clash",
    [{"min_tokens": 9}, {"allowed_token_ids": [EOS, ord("z")]}, {"bad_words": ["a"]}],
    ids=lambda clash: next(iter(clash)),
)
def test_parameters_that_leave_nothing_of_a_form_are_named(clash: dict[str, Any], run: Run) -> None:
    free = greedy(None, 12)
    outputs = run([free, greedy(StructuredOutputs(regex="aaa"), 12, **clash), free], "forced")
    position = 3 if "min_tokens" in clash else 0
    assert f"no token is left for output token {position}: the grammar and the request's other" in str(outputs[1].error)
    assert outputs[0].error is outputs[2].error is None


# ----------------------------------------------------------------------------------------------------- faults


@dataclass
class FaultyMatcher(WordsMatcher):
    """Raises at the `at`-th call of `method`, once or from then on."""

    method: str = ""
    at: int = 0
    is_lasting: bool = False
    num_calls: int = 0

    def _call(self, method: str) -> None:
        if method == self.method:
            self.num_calls += 1
            if self.num_calls == self.at or (self.is_lasting and self.num_calls > self.at):
                raise RuntimeError("a bug in the matcher")

    def fill_row(self, bitmask: Any, row: int) -> None:
        self._call("fill_row")
        super().fill_row(bitmask, row)

    def accept(self, token_id: int) -> bool:
        self._call("accept")
        return super().accept(token_id)

    def rollback(self, num_tokens: int) -> None:
        self._call("rollback")
        super().rollback(num_tokens)

    @property
    def is_accepting(self) -> bool:
        self._call("is_accepting")
        return super().is_accepting

    def forced_bytes(self) -> bytes:
        self._call("forced_bytes")
        return super().forced_bytes()


@dataclass
class FaultyBackend(WordsBackend):
    """What its matchers do wrong is set by the test."""

    def load(self, payload: bytes) -> CompiledGrammar:
        grammar = super().load(payload)
        assert isinstance(grammar, WordsGrammar)
        fault = dict(FAULT)
        return FaultyGrammar(grammar.words, grammar.tokens, fault=fault)


@dataclass(frozen=True)
class FaultyGrammar(WordsGrammar):
    fault: dict[str, Any] = field(default_factory=dict)

    def matcher(self) -> WordsMatcher:
        return FaultyMatcher(self.words, self.tokens, **self.fault)


FAULT: dict[str, Any] = {}
WORDS = ["abcab", "abcabd", "abdde"]


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("method", ["fill_row", "accept", "rollback", "is_accepting", "forced_bytes"])
@pytest.mark.parametrize("drafts", ["none", "right", "forced"])
def test_a_matcher_that_raises_costs_its_request_and_never_lets_a_wrong_text_through(
    drafts: str, method: str, at: int, is_lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"method": method, "at": at, "is_lasting": is_lasting}.items():
        monkeypatch.setitem(FAULT, name, value)
    faulty = StructuredOutputs(regex="|".join(WORDS), backend=f"{__name__}:FaultyBackend")
    sound = StructuredOutputs(regex="|".join(WORDS), backend="specinfer.testing.grammars:WordsBackend")
    make: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "right": lambda: ScriptedProposer(misguided([*b"abcabd", EOS], ord("d"), 4), num_draft_tokens=3),
        "forced": lambda: ForcedProposer(inner=ScriptedProposer(echo_script)),
    }
    loaded = saying("abcabd")
    params = [greedy(None, 9), greedy(faulty, 9), greedy(sound, 9)]
    plain = LLM(CONFIG, loaded_model=loaded).generate([[65]] * 2, [params[0], params[2]])
    llm = LLM(CONFIG, make[drafts](), loaded_model=loaded)
    outputs = llm.generate([[65]] * 3, params)
    llm.engine.check_integrity()
    assert [tokens(outputs[0]), tokens(outputs[2])] == [tokens(output) for output in plain]
    victim = outputs[1]
    if victim.error is None:
        assert tokens(victim) == [*b"abcabd", EOS]
    else:
        assert "the grammar failed at output token" in victim.error
        assert victim.outputs[0].finish_reason is FinishReason.ERROR
        assert any(word.startswith(victim.outputs[0].text) for word in WORDS), "a text that is no beginning of a word"


# --------------------------------------------------------------------------------- forced text, but not tokens


@dataclass
class Pieces:
    """A tokenizer whose tokens are pieces of text; the longest first when it writes."""

    pieces: Sequence[bytes]

    def encode_plain(self, text: str) -> list[int]:
        rest, found = text.encode(), []
        while rest:
            fitting = [i for i, piece in enumerate(self.pieces) if piece and rest.startswith(piece)]
            found.append(max(fitting, key=lambda i: len(self.pieces[i])))
            rest = rest[len(self.pieces[found[-1]]) :]
        return found

    encode = encode_plain

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(self.pieces[i] for i in token_ids).decode(errors="replace")

    def render_chat(self, messages: Any, *, add_generation_prompt: bool = True) -> list[int]:
        raise NotImplementedError

    def token_strings(self) -> list[str]:
        return [f"<{i}>" for i in range(len(self.pieces))]

    def token_bytes(self) -> list[bytes]:
        return list(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


PIECES = Pieces([b"a", b"b", b"ab", b"c", b"bc", b"\xc3\xa9", b"\xc3", b"\xa9", b""])


@pytest.mark.parametrize("pattern", ["abc", "abcab", "aé|ab", "ab(?:c|bc)", "é{2}"])
@pytest.mark.parametrize("proposer", ["forced", "ngram", "filtered"])
def test_text_that_is_forced_but_cut_in_several_ways_keeps_the_law(proposer: str, pattern: str) -> None:
    loaded = LoadedModel(TinyModel(vocab_size=9, sharpness=1.0, order=None), PIECES, frozenset({8}))
    manager = GrammarManager(CONFIG.structured, lambda: token_table(loaded))
    params = SamplingParams(seed=0, max_tokens=6, structured_outputs=StructuredOutputs(regex=pattern))

    def law(name: str | None) -> dict[tuple[int, ...], float]:
        def one(randomness: Randomness) -> list[int]:
            llm = LLM(CONFIG, name, loaded_model=loaded, grammars=manager, randomness=randomness)
            output = llm.generate([[0, 1, 3, 0, 1]], params)[0]
            assert output.error is None and output.draft_error is None, output
            drafted.append(output.stats.num_draft_tokens)
            return tokens(output)

        return output_law(one)

    drafted: list[int] = []
    plain = law(None)
    assert len(plain) > 1, "the text can be cut in one way only"
    drafted.clear()
    assert_same_law(law(proposer), plain)
    assert sum(drafted) > 0
    manager.close()
