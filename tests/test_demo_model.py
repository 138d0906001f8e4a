"""End to end on the bundled model, in float32: real text, real tokens, the same whatever is switched on."""

import json
from importlib.resources import files
from typing import Any

import pytest
import torch

from proposers.eagle import EagleProposer
from proposers.fallback import FallbackProposer
from proposers.growth import Growth
from proposers.lookahead import LookaheadProposer
from proposers.ngram import NgramProposer
from proposers.self_draft import SelfDraftProposer
from proposers.suffix import SuffixProposer
from specinfer import LLM, CacheConfig, EngineConfig, SamplingParams, SchedulerConfig
from specinfer.models.eagle_checkpoint import SHIPPED, read_checkpoint
from specinfer.models.loading import load_model
from specinfer.protocols import LoadedModel

pytestmark = pytest.mark.demo

CONFIG = EngineConfig(cache=CacheConfig(kv_memory_bytes=1 << 28))
NUM_TOKENS = 32
TIE_MARGIN = 1e-3
"""Top-2 margin, in nats, below which rounding may choose either token."""


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(CONFIG)


def _conversations(limit_per_category: int) -> list[list[dict[str, str]]]:
    lines = files("experiments").joinpath("prompts", "own.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    kept = [item for i, item in enumerate(items) if i % 8 < limit_per_category]
    return [[{"role": "user", "content": item["turns"][0]}] for item in kept]


def _greedy(llm: LLM, prompts: list[list[int]], num_tokens: int = NUM_TOKENS) -> list[Any]:
    return llm.generate(prompts, SamplingParams(temperature=0, max_tokens=num_tokens, logprobs=2))


def assert_equal_up_to_ties(found: list[int], expected: Any) -> None:
    """Equal ids, or a first difference where the expected run's two best tokens were tied."""
    completion = expected.outputs[0]
    for position, (ours, theirs) in enumerate(zip(found, completion.token_ids, strict=False)):
        if ours != theirs:
            first, second = sorted((e.logprob for e in completion.logprobs[position].values()), reverse=True)[:2]
            assert first - second < TIE_MARGIN, f"token {position}: {ours} != {theirs}, margin {first - second:.2e}"
            return
    assert len(found) == len(completion.token_ids)


@pytest.fixture(scope="module")
def plain(loaded: LoadedModel) -> tuple[list[list[int]], list[Any]]:
    """Prompts of every task and their plain answers, one at a time."""
    llm = LLM(CONFIG, loaded_model=loaded)
    prompts = [llm.render_chat(conversation) for conversation in _conversations(1)]
    return prompts, [_greedy(llm, [prompt])[0] for prompt in prompts]


SHAPES = {
    "batch": CONFIG,
    "small chunks": EngineConfig(
        cache=CONFIG.cache, scheduler=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=32)
    ),
    "preempting": EngineConfig(cache=CacheConfig(num_blocks=60)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [0, 4])
def test_greedy_tokens_do_not_depend_on_drafts_batch_or_chunks(
    loaded: LoadedModel, plain: tuple[list[list[int]], list[Any]], shape: str, k: int
) -> None:
    prompts, expected = plain
    outputs = _greedy(LLM(SHAPES[shape], NgramProposer(num_draft_tokens=k), loaded_model=loaded), prompts)
    if k:
        drafted, accepted = (
            sum(getattr(output.stats, name) for output in outputs)
            for name in ("num_draft_tokens", "num_accepted_tokens")
        )
        assert 0 < accepted < drafted
    if shape == "preempting":
        assert sum(output.stats.num_preemptions for output in outputs) > 0
    for output, reference in zip(outputs, expected, strict=True):
        assert_equal_up_to_ties(output.outputs[0].token_ids, reference)


def test_greedy_tokens_are_those_of_transformers(plain: tuple[list[list[int]], list[Any]]) -> None:
    from transformers import AutoModelForCausalLM

    from specinfer.models.demo import demo_folder

    prompts, expected = plain
    model: Any = AutoModelForCausalLM.from_pretrained(demo_folder(), dtype=torch.float32).eval()
    for prompt, reference in list(zip(prompts, expected, strict=True))[:3]:
        ids = torch.tensor([prompt])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, do_sample=False)
        assert_equal_up_to_ties(output[0, len(prompt) :].tolist(), reference)


def test_seeded_tokens_are_the_same_alone_in_company_and_with_drafts(loaded: LoadedModel) -> None:
    llm = LLM(CONFIG, loaded_model=loaded)
    prompts = [llm.render_chat(conversation) for conversation in _conversations(2)]
    params = [SamplingParams(temperature=0.7, top_p=0.95, seed=i, max_tokens=16) for i in range(16)]
    alone = llm.generate(prompts[0], params[0])[0].outputs[0].token_ids
    for shape, proposer in (("batch", None), ("small chunks", None), ("batch", "ngram")):
        outputs = LLM(SHAPES[shape], proposer, loaded_model=loaded).generate(prompts, params)
        assert outputs[0].outputs[0].token_ids == alone, (shape, proposer)


def test_a_shared_prefix_of_512_tokens_is_computed_once(loaded: LoadedModel) -> None:
    llm = LLM(CONFIG, loaded_model=loaded)
    text = "The harbour was quiet, and the boats lay side by side. "
    prefix = llm.loaded_model.tokenizer.encode(text * 60)[:512]
    endings = [llm.loaded_model.tokenizer.encode(ending) for ending in (" Then", " Later that day")]
    llm.generate([[*prefix, *endings[0]]], SamplingParams(temperature=0, max_tokens=4))
    llm.take_events()
    second = _greedy(llm, [[*prefix, *endings[1]]], 8)[0]
    first_step = llm.events[0]
    assert second.stats.num_cached_tokens == 512
    assert first_step.num_scheduled_tokens == len(endings[1])
    fresh = _greedy(LLM(CONFIG, loaded_model=loaded), [[*prefix, *endings[1]]], 8)[0]
    assert_equal_up_to_ties(second.outputs[0].token_ids, fresh)


def test_text_is_what_the_tokenizer_makes_of_the_tokens(loaded: LoadedModel) -> None:
    llm = LLM(CONFIG, "ngram", loaded_model=loaded)
    prompt = llm.render_chat([{"role": "user", "content": "Write five emojis and the word naïve, then 你好."}])
    output = llm.generate([prompt], SamplingParams(temperature=1.0, seed=1, max_tokens=40))[0].outputs[0]
    assert output.text == loaded.tokenizer.decode(output.token_ids)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_greedy_tokens_with_drafts_equal_plain_ones_on_all_own_prompts(loaded: LoadedModel, k: int) -> None:
    llm = LLM(CONFIG, loaded_model=loaded)
    prompts = [llm.render_chat(conversation) for conversation in _conversations(8)]
    expected = [_greedy(llm, [prompt], 64)[0] for prompt in prompts]
    for batch_size in (1, 8):
        drafting = LLM(CONFIG, NgramProposer(num_draft_tokens=k), loaded_model=loaded)
        for start in range(0, len(prompts), batch_size):
            outputs = _greedy(drafting, prompts[start : start + batch_size], 64)
            for output, reference in zip(outputs, expected[start : start + batch_size], strict=True):
                assert_equal_up_to_ties(output.outputs[0].token_ids, reference)


DRAFTERS: dict[str, Any] = {
    "shipped head, chain": lambda: EagleProposer(num_draft_tokens=4),
    "shipped head, tree": lambda: EagleProposer(num_draft_tokens=10, growth=Growth(tree_width=3)),
    "first layers": lambda: SelfDraftProposer(num_layers=6),
    "suffix tree": lambda: SuffixProposer(is_tree=True),
    "lookahead": LookaheadProposer,
    "ngram, then the shipped head": lambda: FallbackProposer("ngram", EagleProposer()),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_kind_of_drafter_gives_the_plain_answers(
    name: str, plain: tuple[list[list[int]], list[Any]], loaded: LoadedModel
) -> None:
    prompts, answers = plain
    llm = LLM(CONFIG, DRAFTERS[name](), loaded_model=loaded)
    outputs = _greedy(llm, prompts)
    for output, answer in zip(outputs, answers, strict=True):
        assert output.draft_error is None
        assert_equal_up_to_ties(output.outputs[0].token_ids, answer)
    drafted = sum(output.stats.num_draft_tokens for output in outputs)
    accepted = sum(output.stats.num_accepted_tokens for output in outputs)
    assert 0 < accepted < drafted


def test_the_shipped_head_is_small_has_a_card_and_leaves_nothing_open(loaded: LoadedModel) -> None:
    folder = SHIPPED / "eagle3-demo"
    assert (folder / "model.safetensors").stat().st_size < 24_000_000
    card = (folder / "README.md").read_text()
    for said in ("data:", "steps:", "command:", "acceptance length", "by position"):
        assert said in card
    assert not read_checkpoint(folder).open_questions(loaded.model)
