"""Every source of a model loads, and every broken one is a clear line."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specinfer import LLM, CacheConfig, ConfigError, EngineConfig, SamplingParams
from specinfer.models.loading import load_model


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a byte-level tokenizer, saved as a user would."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=255,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_a_local_folder_generates(tiny_folder: Path) -> None:
    llm = LLM(EngineConfig(model=str(tiny_folder), cache=CacheConfig(num_blocks=16)), "ngram")
    output = llm.generate("abcabc", SamplingParams(max_tokens=5, temperature=0, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 5
    assert output.prompt_token_ids == llm.loaded_model.tokenizer.encode("abcabc")
    assert llm.loaded_model.eos_token_ids == {255}


def test_its_greedy_tokens_are_those_of_transformers(tiny_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    config = EngineConfig(model=str(tiny_folder), dtype="float64", cache=CacheConfig(num_blocks=64))
    params = SamplingParams(max_tokens=30, temperature=0, ignore_eos=True)
    prompts = [[5, 6, 7], [100] * 8, list(range(20))]
    outputs = LLM(config, "ngram").generate(prompts, params)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float64)
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=30, do_sample=False, eos_token_id=None, pad_token_id=254
        )
        assert output.outputs[0].token_ids == expected[0, len(prompt) :].tolist()


def test_chat_without_a_template_is_refused(tiny_folder: Path) -> None:
    llm = LLM(EngineConfig(model=str(tiny_folder), cache=CacheConfig(num_blocks=16)))
    with pytest.raises(ValueError, match="no chat template"):
        llm.chat([{"role": "user", "content": "hi"}])


def test_a_longer_context_than_the_models_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_model_len=65.*64"):
        load_model(EngineConfig(model=str(tiny_folder), max_model_len=65))


def _gguf(path: Path) -> Path:
    from gguf import GGUFWriter

    writer: Any = GGUFWriter(str(path), "llama")
    writer.add_tensor("token_embd.weight", torch.randn(64, 32).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.99])
def test_a_gguf_that_is_cut_is_a_clear_line(tmp_path: Path, keep: float) -> None:
    whole = _gguf(tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(ConfigError, match=r"cut.gguf.*fetch it again") as error:
        load_model(EngineConfig(model=str(cut)))
    assert "\n" not in str(error.value)


def test_broken_sources_are_clear_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    no_weights = tmp_path / "no_weights"
    no_weights.mkdir()
    (no_weights / "config.json").write_text('{"model_type": "llama"}')
    text = tmp_path / "model.txt"
    text.write_text("hello")
    fake = tmp_path / "fake.gguf"
    fake.write_text("hello")
    cases = {
        str(tmp_path / "empty"): "no config.json",
        str(no_weights): "no \\*.safetensors",
        str(text): "is a file, but no .gguf",
        str(fake): "no GGUF file",
        str(tmp_path / "missing.gguf"): "there is no GGUF file",
        "no-such-org/no-such-model": "could not be loaded.*give 'demo'",
    }
    for source, message in cases.items():
        with pytest.raises(ConfigError, match=message) as error:
            load_model(EngineConfig(model=source))
        assert "\n" not in str(error.value)


def test_a_folder_that_lacks_weights_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_folder, tmp_path / "partial")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lacks 1 of its weights \(model.layers.1.mlp.up_proj"):
        load_model(EngineConfig(model=str(folder)))


def test_an_unusable_device_is_a_clear_line(tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="device='nonsense'"):
        load_model(EngineConfig(model=str(tiny_folder), device="nonsense"))


def test_a_gguf_without_the_packages_that_read_it_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _gguf(tmp_path / "whole.gguf")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs gguf and accelerate: pip install 'specinfer\[gguf\]'"):
        load_model(EngineConfig(model=str(path)))
