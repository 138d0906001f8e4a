"""Where does a target model come from?

A hub id, a local folder, a GGUF file or the bundled `demo`. Always true: weights are read from safetensors or GGUF
only, never unpickled; no code of the model's runs unless `trust_remote_code` is set; a failure is one clear line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, SpecinferError
from specinfer.models.demo import demo_folder, require_gguf
from specinfer.models.paged import ATTENTION_NAME, register
from specinfer.models.tokenizer import TransformersTokenizer
from specinfer.models.transformers_model import TransformersModel
from specinfer.protocols import LoadedModel


def load_model(config: EngineConfig) -> LoadedModel:
    """Load model and tokenizer; ConfigError when there is none, UnsupportedModelError when it does not fit."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    source = _source(config)
    hf_model, hf_tokenizer = _read(config, source)
    hf_model.to(_device(config))
    own_len = getattr(hf_model.config.get_text_config(), "max_position_embeddings", None)
    if config.max_model_len is not None and own_len is not None and config.max_model_len > own_len:
        raise ConfigError(f"max_model_len={config.max_model_len} is more than the model's own {own_len}; lower it")
    model = TransformersModel(
        hf_model,
        name=config.model,
        max_model_len=config.max_model_len,
        pack_linear_weights=config.pack_linear_weights,
    )
    return LoadedModel(model, TransformersTokenizer(hf_tokenizer), _eos_token_ids(hf_model, hf_tokenizer))


def _source(config: EngineConfig) -> dict[str, Any]:
    """The arguments that tell `from_pretrained` where to look."""
    if config.model == "demo":
        return {"name": str(demo_folder()), "local_files_only": True}
    path = Path(config.model).expanduser()
    if path.suffix.lower() == ".gguf":
        _check_gguf(path)
        return {"name": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    if path.is_dir():
        _check_folder(path)
        return {"name": str(path), "local_files_only": True}
    if path.exists():
        raise ConfigError(f"model={config.model!r} is a file, but no .gguf; give a folder, a GGUF or a hub id")
    return {"name": config.model, "revision": config.revision}


def _check_gguf(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"there is no GGUF file at {str(path)!r}")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ConfigError(f"{str(path)!r} is no GGUF file: it does not begin with those letters")
    require_gguf()
    try:
        from gguf import GGUFReader

        tensors = GGUFReader(str(path)).tensors
        last_byte = max((tensor.data_offset + tensor.n_bytes for tensor in tensors), default=0)
    except Exception as error:  # a file cut in its header can fail in any way
        raise ConfigError(
            f"{str(path)!r} is no whole GGUF file ({type(error).__name__}: {error}); fetch it again"
        ) from None
    if last_byte > path.stat().st_size:
        raise ConfigError(
            f"{str(path)!r} is cut short: it has {path.stat().st_size} bytes of {last_byte}; fetch it again"
        )


def _check_folder(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise ConfigError(f"the folder {str(path)!r} has no config.json; give a folder saved by save_pretrained")
    if not any(path.glob("*.safetensors")):
        raise ConfigError(
            f"the folder {str(path)!r} has no *.safetensors weights (pickled weights are never read); convert it with "
            f"save_pretrained"
        )


def _read(config: EngineConfig, source: dict[str, Any]) -> tuple[Any, Any]:
    """Model and tokenizer from transformers, whose many ways to fail become one line."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    register()
    arguments = dict(source)
    name = arguments.pop("name")
    arguments["trust_remote_code"] = config.trust_remote_code
    dtype = "auto" if config.dtype == "auto" else getattr(torch, config.dtype)
    show_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **arguments)
        if "gguf_file" not in arguments:
            arguments["use_safetensors"] = True
        model, info = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, attn_implementation=ATTENTION_NAME, output_loading_info=True, **arguments
        )
    except SpecinferError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError, hub and safetensors errors, as it happens
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"model {config.model!r} could not be loaded: {reason}; give 'demo', a folder with safetensors, a "
            f".gguf file or a hub id that this machine can reach"
        ) from error
    else:
        if info["missing_keys"]:
            missing = sorted(info["missing_keys"])
            raise ConfigError(
                f"model {config.model!r} lacks {len(missing)} of its weights ({', '.join(missing[:3])}, ...), which "
                f"would be random; fetch or save it again"
            )
    finally:
        if show_progress:
            logging.enable_progress_bar()
    return model, tokenizer


def _device(config: EngineConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(config.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device={config.device!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _eos_token_ids(hf_model: Any, hf_tokenizer: Any) -> frozenset[int]:
    """Every id that ends a generation: from the generation config, else the model's, and the tokenizer's."""
    found: set[int] = set()
    for owner in (hf_model.generation_config, hf_model.config, hf_tokenizer):
        ids = getattr(owner, "eos_token_id", None)
        found |= {ids} if isinstance(ids, int) else set(ids or ())
    return frozenset(found)
