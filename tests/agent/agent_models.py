"""A tiny random model and a byte-level tokenizer, built here: no download, milliseconds a pass, exact in float64."""

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from mrtpo_agent.policy import Policy

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIGS = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "mistral": MistralConfig,
    "granite": GraniteConfig,
    "gemma2": Gemma2Config,
}


def make_tokenizer(template=CHAT_TEMPLATE):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(["<|pad|>", "<|im_start|>", "<|im_end|>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    fast.chat_template = template
    return fast


def make_model(family="llama", dtype=torch.float64, seed=0, **more):
    tokenizer = make_tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(CONFIGS[family](**settings | more), dtype=dtype)
    return model.eval(), tokenizer


def make_policy(
    family="llama", dtype=torch.float64, packing="auto", seed=0, rank=4, adapter_scale=0.3, dropout=0.0, **more
):
    model, tokenizer = make_model(family, dtype, seed, **more)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        lora = LoraConfig(
            r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        adapted = get_peft_model(model, lora)
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(dtype if dtype == torch.float64 else torch.float32)
                if "lora_B" in name and adapter_scale:  # a fresh adapter is zero; one that does something tests more
                    parameter.data.normal_(0, adapter_scale)
    return Policy(adapted, tokenizer, packing=packing)
