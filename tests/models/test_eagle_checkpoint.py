"""A head's checkpoint is read as it says, and refused, with the way out, where it does not say or does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specinfer import ConfigError
from specinfer.errors import UnsupportedModelError
from specinfer.models.eagle import EagleKind
from specinfer.models.eagle_checkpoint import EagleReading, LayerIds, head_shape, load_head, read_checkpoint
from specinfer.models.eagle_export import write_head
from specinfer.models.eagle_weights import VocabularyMap
from specinfer.protocols import LoadedModel
from specinfer.testing.llama import tiny_eagle_head, tiny_llama
from specinfer.testing.models import tiny_loaded_model

DRAFT_IDS = [7, 0, 2, 4, 1, 6, 3]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return tiny_llama(8)


class Folder:
    """A checkpoint that a test spoils."""

    def __init__(self, path: Path, kind: EagleKind = EagleKind.EAGLE3, layout: str = "eagle", **options: Any) -> None:
        self.path = path
        head = tiny_eagle_head(kind, **options)
        if kind is EagleKind.EAGLE3 and head.shape.draft_vocab_size == len(DRAFT_IDS):
            head.draft_to_target = torch.tensor(DRAFT_IDS)
        write_head(head, path, layout=layout)

    def config(self, *left_out: str, **changes: Any) -> None:
        config: dict[str, Any] = json.loads((self.path / "config.json").read_text())
        kept = {name: value for name, value in config.items() if name not in left_out}
        (self.path / "config.json").write_text(json.dumps(kept | changes))

    def weights(self, *left_out: str, **changes: torch.Tensor) -> None:
        file = self.path / "model.safetensors"
        kept = {name: tensor for name, tensor in load_file(file).items() if name not in left_out}
        save_file(kept | changes, file)


Make = Callable[..., Folder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda *arguments, **options: Folder(tmp_path / "head", *arguments, **options)


def load(folder: Folder, loaded: LoadedModel, **answers: Any) -> Any:
    return load_head(str(folder.path), loaded.model, EagleReading(**answers))[0]


def refusal(folder: Folder, loaded: LoadedModel, **answers: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load(folder, loaded, **answers)
    return str(error.value)


# ---------------------------------------------------------------------------------------------- open questions


def test_what_is_open_is_refused_with_its_choices(make: Make, loaded: LoadedModel) -> None:
    folder = make(hidden_points=(1, 2, 3))
    folder.config("layer_id_convention", "norm_before_residual")
    complaint = refusal(folder, loaded)
    assert "reading.layer_ids is one of INPUT_OF, OUTPUT_OF" in complaint
    assert "reading.norm_before_residual is one of False, True" in complaint
    assert f"python -m experiments.doctor head={folder.path}" in complaint
    assert "norm_before_residual" not in refusal(folder, loaded, norm_before_residual=True)


@pytest.mark.parametrize(("layer_ids", "points"), [(LayerIds.INPUT_OF, (1, 2, 3)), (LayerIds.OUTPUT_OF, (2, 3, 4))])
def test_a_reading_settles_it(layer_ids: LayerIds, points: tuple[int, ...], make: Make, loaded: LoadedModel) -> None:
    folder = make(hidden_points=(1, 2, 3))
    folder.config("layer_id_convention", "norm_before_residual")
    shape = load(folder, loaded, layer_ids=layer_ids, norm_before_residual=True).shape
    assert shape.hidden_points == points and shape.norm_before_residual


@pytest.mark.parametrize("ids", [(2, 2, 1), (1, 1, 0)])
def test_the_usual_layers_are_known_in_either_convention(ids: tuple[int, ...], make: Make, loaded: LoadedModel) -> None:
    folder = make(hidden_points=ids)
    folder.config("layer_id_convention")
    assert load(folder, loaded).shape.hidden_points == (2, 2, 1)


def test_without_layer_ids_the_usual_layers_are_read(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.config("eagle_config")
    assert load(folder, loaded).shape.hidden_points == (2, 2, 1)
    assert "reading.layer_ids settles nothing" in refusal(folder, loaded, layer_ids=LayerIds.INPUT_OF)


def test_an_answer_that_settles_nothing_is_refused(make: Make, loaded: LoadedModel) -> None:
    folder = make(EagleKind.EAGLE1)
    assert "reading.norm_output settles nothing" in refusal(folder, loaded, norm_output=True)


def test_a_reading_overrules_what_is_stated(make: Make, loaded: LoadedModel) -> None:
    shape = load(make(norm_output=True), loaded, norm_output=False, norm_before_residual=True).shape
    assert not shape.norm_output and shape.norm_before_residual


def test_a_layer_that_the_target_has_not_is_refused(make: Make, loaded: LoadedModel) -> None:
    folder = make(hidden_points=(2, 3, 4))
    assert "reads layers [2, 3, 4]" in refusal(folder, loaded, layer_ids=LayerIds.OUTPUT_OF)


def test_a_statement_of_no_meaning_is_refused(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.config(layer_id_convention="sideways")
    assert "layer_id_convention is 'sideways', not one of input_of, output_of" in refusal(folder, loaded)


# ----------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kind", EagleKind)
@pytest.mark.parametrize("layout", ["eagle", "speculators"])
def test_a_missing_extra_or_misshapen_tensor_is_named(
    kind: EagleKind, layout: str, make: Make, loaded: LoadedModel
) -> None:
    folder = make(kind, layout=layout)
    prefix = "midlayer." if layout == "eagle" and kind is EagleKind.EAGLE3 else "layers.0."
    changes = {f"{prefix}mlp.up_proj.weight": torch.zeros(5, 16), "another.weight": torch.zeros(2)}
    folder.weights(f"{prefix}self_attn.q_proj.weight", **changes)
    complaint = refusal(folder, loaded)
    assert "midlayer.mlp.up_proj.weight has the shape [5, 16] where [24, 16] is wanted" in complaint
    assert "midlayer.self_attn.q_proj.weight is missing" in complaint and "another.weight is not used" in complaint


def test_an_eagle_3_head_without_its_norm_is_still_one(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.weights("midlayer.hidden_norm.weight")
    assert refusal(folder, loaded).endswith("does not fit its settings: midlayer.hidden_norm.weight is missing")


@pytest.mark.parametrize(("stated", "is_there"), [(True, False), (False, True)])
def test_a_norm_that_the_settings_contradict_is_refused(
    stated: bool, is_there: bool, make: Make, loaded: LoadedModel
) -> None:
    folder = make(norm_before_fc=is_there)
    folder.config(norm_before_fc=stated)
    assert f"input_norm.weight is {'missing' if stated else 'not used'}" in refusal(folder, loaded)


def test_pickled_weights_are_never_read(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    torch.save(load_file(folder.path / "model.safetensors"), folder.path / "pytorch_model.bin")
    (folder.path / "model.safetensors").unlink()
    assert "no *.safetensors (pickled weights are never read)" in refusal(folder, loaded)


def test_broken_files_are_one_line(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    (folder.path / "model.safetensors").write_bytes(b"short")
    assert "cannot be read as safetensors" in refusal(folder, loaded)
    Folder(folder.path)
    (folder.path / "config.json").write_text("{")
    assert "is no JSON" in refusal(folder, loaded)
    (folder.path / "config.json").unlink()
    assert "has no config.json" in refusal(folder, loaded)


def test_a_model_that_is_no_head_is_refused(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.weights("fc.weight")
    assert "is no EAGLE head: it has no fc.weight" in refusal(folder, loaded)


def test_settings_that_are_missing_or_unsupported_are_named(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.config("intermediate_size")
    assert "config.json does not give intermediate_size" in refusal(folder, loaded)
    folder.config(intermediate_size=24, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    with pytest.raises(UnsupportedModelError, match="rotary scaling 'yarn'"):
        load(folder, loaded)


def test_rotary_settings_are_read_in_either_form(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    assert isinstance(loaded.model.vocab_size, int)
    for changes in ({"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}):
        folder.config("rope_theta", **changes)
        shape = head_shape(read_checkpoint(folder.path), loaded.model, EagleReading())  # type: ignore[arg-type]
        assert shape.rope_theta == 5e5


# ---------------------------------------------------------------------------------------------- vocabulary map


def test_offsets_are_added_to_the_draft_ids(make: Make, loaded: LoadedModel) -> None:
    assert load(make(), loaded).draft_to_target.tolist() == DRAFT_IDS


def test_absolute_ids_are_refused_with_the_way_out_and_read_when_asked(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.config("vocabulary_map")
    folder.weights(d2t=torch.tensor(DRAFT_IDS))
    complaint = refusal(folder, loaded)
    assert (
        "d2t, read as offsets, leaves the vocabulary of 8 tokens; with reading.vocabulary=ABSOLUTE it fits" in complaint
    )
    assert load(folder, loaded, vocabulary=VocabularyMap.ABSOLUTE).draft_to_target.tolist() == DRAFT_IDS


def test_a_map_that_can_be_read_both_ways_is_open(make: Make, loaded: LoadedModel) -> None:
    folder = make(draft_vocab_size=4)
    folder.config("vocabulary_map")
    folder.weights("t2d", d2t=torch.tensor([0, 1, 2, 3]))
    assert "reading.vocabulary is one of OFFSETS, ABSOLUTE" in refusal(folder, loaded)
    assert load(folder, loaded, vocabulary=VocabularyMap.OFFSETS).draft_to_target.tolist() == [0, 2, 4, 6]
    folder.weights(t2d=torch.tensor([1, 0, 1, 0, 1, 0, 1, 0]).bool())
    assert load(folder, loaded).draft_to_target.tolist() == [0, 2, 4, 6], "t2d tells"


@pytest.mark.parametrize(
    ("d2t", "fault"),
    [
        ([1, 0, 0, 0, 0, 0, 0], "maps two draft tokens to one token"),
        ([0, 0, 0, 0, 0, 0, 9], "leaves the vocabulary of 8 tokens"),
        ([0, 0, 0], "has 3 entries for 7 draft tokens"),
        ([0, 0, 0, 0, 0, 0, 0], "and t2d name different tokens; one of the two is wrong"),
    ],
)
def test_a_map_that_cannot_be_is_refused(d2t: list[int], fault: str, make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.weights(d2t=torch.tensor(d2t))
    complaint = refusal(folder, loaded)
    assert fault in complaint and "it fits" not in complaint


def test_fewer_draft_tokens_need_a_map(make: Make, loaded: LoadedModel) -> None:
    folder = make()
    folder.weights("d2t", "t2d")
    assert "has 7 draft tokens but no d2t map" in refusal(folder, loaded)


# ------------------------------------------------------------------------------------------------------ target


@pytest.mark.parametrize("kind", EagleKind)
def test_a_head_for_another_target_is_refused(kind: EagleKind, make: Make, loaded: LoadedModel) -> None:
    assert "is for 12 tokens, tiny-llama-0 has 8" in refusal(make(kind, vocab_size=12), loaded)
    options: dict[str, Any] = {"hidden_size": 24, "head_dim": 6}
    assert "reads states of 24 numbers, tiny-llama-0 has 16" in refusal(make(kind, **options), loaded)


def test_a_target_without_an_inside_is_refused(make: Make) -> None:
    with pytest.raises(UnsupportedModelError, match="shows no hidden states"):
        load(make(), tiny_loaded_model(vocab_size=8))
