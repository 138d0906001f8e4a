"""What the trainer computes is what the engine does with the same head."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.training.data import TrainingData
from experiments.training.eagle import accepted_lengths, text_batch, unroll, walk_acceptance
from experiments.training.losses import soft_cross_entropy
from proposers.eagle import EagleProposer
from specinfer import LLM, EngineConfig, SamplingParams
from specinfer.metrics import table
from specinfer.metrics.figures import by_position
from specinfer.models.eagle import EagleHead, EagleKind
from specinfer.models.eagle_export import write_head
from specinfer.testing.llama import tiny_eagle_head

NUM_STEPS = 4


def lengths_of(head: EagleHead, data: TrainingData) -> list[list[int]]:
    numbers = list(range(data.features.num_conversations))
    is_third = head.shape.kind is EagleKind.EAGLE3
    batch = text_batch(data.features, numbers, NUM_STEPS, torch.device("cpu"), reads_final=not is_third)
    outputs = unroll(head.float(), data.embedding, batch, NUM_STEPS)

    def drafted(out: torch.Tensor) -> torch.Tensor:
        if is_third:
            return head.draft_to_target[head.draft_logits(out).argmax(-1)]
        return (out @ data.head.T).argmax(-1)

    return accepted_lengths(outputs, drafted, batch)


@pytest.mark.parametrize("kind", EagleKind)
def test_the_accepted_lengths_are_the_engines(kind: EagleKind, tiny_data: TrainingData, tmp_path: Path) -> None:
    head = tiny_eagle_head(kind)
    write_head(head, tmp_path, dtype=torch.float64)
    llm = LLM(
        EngineConfig(), EagleProposer(head=str(tmp_path), num_draft_tokens=NUM_STEPS), loaded_model=tiny_data.loaded
    )
    params = [SamplingParams(temperature=0, max_tokens=len(r.token_ids)) for r in tiny_data.responses]
    outputs = llm.generate([r.prompt_token_ids for r in tiny_data.responses], params)
    place = {output.request_id: i for i, output in enumerate(outputs)}
    events = llm.take_events()
    foretold = lengths_of(head, tiny_data)
    num_checked = 0
    for event in events:
        response = tiny_data.responses[place[event.request_id]]
        base = event.context_len - len(response.prompt_token_ids) - 1
        if event.draft_token_ids and base + NUM_STEPS + 1 < len(response.token_ids):
            assert event.num_accepted == foretold[place[event.request_id]][base]
            num_checked += 1
    assert num_checked > 30 and sum(map(sum, foretold)) > 0
    rates = by_position(table.from_events(events))
    walked = walk_acceptance(foretold, NUM_STEPS)
    assert [value or 0.0 for value in rates.conditional] == pytest.approx(walked.conditional)


def test_a_walk_steps_behind_the_accepted_tokens_and_one_more() -> None:
    found = walk_acceptance([[2, 0, 9, 1, 9, 0], [9, 9]], num_steps=2)
    assert found.length == pytest.approx(1 + (2 + 1 + 0 + 1) / 4), "a last token is never drafted"
    assert found.conditional == pytest.approx([3 / 3, 1 / 3])


def test_the_loss_and_its_gradient_are_those_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(130, 9, generator=generator, dtype=torch.float32).requires_grad_()
    labels = torch.randn(40, 9, generator=generator)
    places = torch.randint(40, (130,), generator=generator)
    value, num_hits = soft_cross_entropy(logits, labels, places)
    value.backward()
    found = logits.grad
    logits.grad = None
    wanted = -(labels[places].softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
    wanted.backward()
    assert logits.grad is not None and found is not None
    assert float(value) == pytest.approx(float(wanted), rel=1e-5)
    torch.testing.assert_close(found, logits.grad)
    assert int(num_hits) == int((logits.argmax(-1) == labels[places].argmax(-1)).sum())


def test_bases_on_prompts_go_on_before_those_of_the_response(tiny_data: TrainingData) -> None:
    features, head = tiny_data.features, tiny_eagle_head(EagleKind.EAGLE3).float()
    numbers = list(range(features.num_conversations))
    narrow, wide = (
        text_batch(features, numbers, 1, torch.device("cpu"), on_prompts=on_prompts) for on_prompts in (False, True)
    )
    outputs = [unroll(head, tiny_data.embedding, batch, 1)[0] for batch in (narrow, wide)]
    for text, number in enumerate(numbers):
        num_earlier = max(int(features.response_starts[number] - features.starts[number]) - 1, 0)
        count = int((narrow.num_left[text] > 0).sum())
        assert int((wide.num_left[text] > 0).sum()) == num_earlier + count
        torch.testing.assert_close(outputs[1][text, num_earlier : num_earlier + count], outputs[0][text, :count])
        assert torch.equal(wide.labels[text, num_earlier : num_earlier + count], narrow.labels[text, :count])
