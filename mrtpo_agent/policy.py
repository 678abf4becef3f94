"""The policy: a causal language model with a LoRA adapter.

It does four things, each in one place: turn a chat into tokens (`encode`), sample a group of responses (`sample`), give
the hidden states that predict each response token (`hidden`, from which `divergence.token_logprobs` and the replay take
their numbers), and switch the adapter off (`adapter_off`) for the base model's opinion.

`hidden` is the one forward pass of the library. All responses of a group share their prompt, so they travel in one row:

    prompt | response 1 | response 2 | ... | response G        position ids restart at the prompt's end for each

under a mask in which a response sees the prompt and itself. That encodes the prompt once, pads nothing, and equals the
plain path (one padded row per response) within rounding; where a model's attention cannot do it (sliding windows, no
custom mask), the first use finds out by comparing the two, says so, and takes the plain path.

Loading a model lives in `loading.py`.

    g response of the group, t response token (T_g of them, end token included), h hidden size, v vocabulary
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache

from mrtpo_envs import PolicyError, Prompt

logger = logging.getLogger(__name__)

COMPACT_AT = 0.75
"""Sampling drops finished rows once this share or less of the batch is alive: copying the cache costs about a step."""


@dataclass(frozen=True, slots=True)
class Response:
    """One sampled response as the tokens that were sampled, never re-tokenised."""

    ids: tuple[int, ...]
    """Token ids, the end token included where one was sampled."""
    truncated: bool
    """True where the token limit came before an end token."""


class Policy:
    """A causal LM of transformers, wrapped by peft, with its tokenizer.

    Args:
        model: a `PeftModel` over a causal LM.
        tokenizer: its tokenizer, with a chat template.
        packing: "auto", "on" or "off"; see the module's docstring.

    Raises:
        PolicyError: the tokenizer has no chat template, the model has no end token, or its head cannot be applied to
            hidden states alone.
    """

    def __init__(self, model: Any, tokenizer: Any, *, packing: Literal["auto", "on", "off"] = "auto") -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise PolicyError(
                "the tokenizer has no chat template, so prompts cannot be written as the model expects them: "
                "choose an instruction-tuned model, or set `tokenizer.chat_template`"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.causal_lm = model.get_base_model()
        self.decoder = self.causal_lm.get_decoder()
        self.lm_head = self.causal_lm.get_output_embeddings()
        self.device: torch.device = self.lm_head.weight.device
        self.dtype: torch.dtype = self.lm_head.weight.dtype
        self.eos_ids = _eos_ids(self.causal_lm, tokenizer)
        self.special_ids = frozenset(int(i) for i in tokenizer.all_special_ids) | frozenset(self.eos_ids)
        self.has_dropout = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in model.modules())
        self.tools_format = _tools_format(getattr(tokenizer, "chat_template", None))
        self.packed: bool | None = {"auto": None, "on": True, "off": False}[packing]
        accepted = inspect.signature(self.decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self._check_head()

    # text and tokens ------------------------------------------------------------------------------------------------

    def chat(
        self, prompt: Prompt, omit: Collection[str] = (), hints: Sequence[str] = ()
    ) -> tuple[list[dict[str, str]], list[Any] | None]:
        """A prompt's messages, and the tools for the chat template: where that shows tools and asks for the prompt's own
        format, it shows them and the messages do not."""
        by_template = bool(prompt.tools) and prompt.tools_format in ("", self.tools_format)
        return prompt.messages(omit, hints, template_tools=by_template), [*prompt.tools] if by_template else None

    def encode(self, prompt: Prompt, omit: Collection[str] = (), hints: Sequence[str] = ()) -> list[int]:
        """Token ids of a prompt, up to and including the words that open the policy's turn."""
        messages, tools = self.chat(prompt, omit, hints)
        text = self.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        # A lone surrogate is no text that a tokenizer can take; a policy's own words may come back as feedback.
        text = text.encode("utf-8", "replace").decode("utf-8")
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode_feedback(self, prompt: Prompt, feedback: str, *, ended: bool) -> list[int]:
        """Token ids that go between a sampled response and the next one: the turn's end, the feedback, the new turn.

        The response itself is not tokenised again: the chat is written with a mark in its place, and what the template
        puts after the mark is taken.

        Args:
            prompt: the prompt that the response answered.
            feedback: the environment's words, as a user message.
            ended: the response holds its end token already.

        Raises:
            PolicyError: the chat template changes the response's text, so that its end cannot be found.
        """
        mark = "mrtpo\u2063response"
        messages, tools = self.chat(prompt)
        chat = [*messages, {"role": "assistant", "content": mark}, {"role": "user", "content": feedback}]
        text = self.tokenizer.apply_chat_template(chat, tools=tools, add_generation_prompt=True, tokenize=False)
        _, found, after = text.rpartition(mark)
        if not found:
            raise PolicyError("this chat template rewrites the assistant's text: it cannot be used for several turns")
        ids = list(
            self.tokenizer(after.encode("utf-8", "replace").decode("utf-8"), add_special_tokens=False)["input_ids"]
        )
        if ended and ids and ids[0] in self.eos_ids:
            ids = ids[1:]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a response: special tokens left out, nothing tidied."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    # sampling -------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float = 1.0,
        seeds: Sequence[int],
        ignore_eos: bool = False,
    ) -> list[list[Response]]:
        """Samples `group_size` responses to each prompt.

        Every prompt is encoded once; its responses start from copies of its cache. Each response draws from a generator
        of its own, one uniform number a token, so that a seed gives the same response whatever else is in the batch (up
        to rounding of the logits). Finished rows leave the batch.

        Args:
            prompts: token ids of each prompt.
            seeds: one seed for each prompt.
            ignore_eos: sample exactly `max_new_tokens` tokens, for measuring.

        Returns:
            For each prompt, its responses.
        """
        if len(seeds) != len(prompts):
            raise PolicyError(f"one seed for each prompt, got {len(seeds)} for {len(prompts)}")
        self.model.eval()
        self._check_context(max(len(prompt) for prompt in prompts), max_new_tokens)
        uniform_rt = torch.cat([_uniform(seed, group_size, max_new_tokens) for seed in seeds]).to(
            self.device
        )  # (rows, T)

        ids_bp, mask_bp = _pad(prompts, pad_left=True, device=self.device)
        cache = DynamicCache(config=self.causal_lm.config)
        position_bp = (mask_bp.cumsum(-1) - 1).clamp(min=0)
        hidden = self._decode(ids_bp, mask_bp, position_bp, cache)[:, -1]  # (B, H)
        cache.batch_repeat_interleave(group_size)
        hidden = hidden.repeat_interleave(group_size, 0)
        mask_rp = mask_bp.repeat_interleave(group_size, 0)
        position_r = position_bp[:, -1].repeat_interleave(group_size)

        rows = len(prompts) * group_size
        out_rt = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=self.device)
        length_r = torch.full((rows,), max_new_tokens, dtype=torch.long, device=self.device)
        ended_r = torch.zeros(rows, dtype=torch.bool, device=self.device)
        alive = torch.arange(rows, device=self.device)  # rows of the output that the batch's rows stand for
        eos = torch.tensor([] if ignore_eos else self.eos_ids, dtype=torch.long, device=self.device)

        for t in range(max_new_tokens):
            token = _draw(self.head(hidden), uniform_rt[alive, t], temperature)
            fresh = ~ended_r[alive]  # finished rows may still be in the batch; what they sample is not theirs
            out_rt[alive[fresh], t] = token[fresh]
            ends = torch.isin(token, eos) & fresh
            length_r[alive[ends]] = t + 1
            ended_r[alive[ends]] = True
            if t + 1 == max_new_tokens:
                break
            going = ~ended_r[alive]
            n_going = int(going.sum())
            if n_going == 0:
                break
            if n_going <= COMPACT_AT * len(alive):
                keep = going.nonzero().squeeze(-1)
                cache.batch_select_indices(keep)
                alive, token, mask_rp, position_r = alive[keep], token[keep], mask_rp[keep], position_r[keep]
            position_r = position_r + 1
            mask_rp = torch.cat([mask_rp, mask_rp.new_ones(len(alive), 1)], dim=1)
            hidden = self._decode(token[:, None], mask_rp, position_r[:, None], cache)[:, -1]

        out, lengths, ended = out_rt.tolist(), length_r.tolist(), ended_r.tolist()
        made = [Response(tuple(out[r][: lengths[r]]), not ended[r]) for r in range(rows)]
        return [made[i : i + group_size] for i in range(0, rows, group_size)]

    # the forward pass -----------------------------------------------------------------------------------------------

    def hidden(self, prompt: Sequence[int], responses: Sequence[Sequence[int]]) -> Tensor:
        """Hidden states that predict each token of `responses` after `prompt`.

        Args:
            prompt: token ids, at least one.
            responses: token ids of each response, each at least one.

        Returns:
            (sum of T_g, H), the responses one after another. `head` of it gives the logits. Gradients flow where they
            are enabled.
        """
        if not prompt or not all(len(r) for r in responses):
            raise PolicyError("a prompt and each response need at least one token")
        if self.packed is None:
            self.packed = self._packing_works(prompt, responses)
        return self._packed_hidden(prompt, responses) if self.packed else self._plain_hidden(prompt, responses)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of hidden states (..., H), in the model's dtype."""
        logits = self.lm_head(hidden)
        config = self.causal_lm.config
        scaling = getattr(config, "logits_scaling", None)  # Granite
        if scaling:
            logits = logits / scaling
        scale = getattr(config, "logit_scale", None)  # Cohere
        if scale:
            logits = logits * scale
        softcap = getattr(config, "final_logit_softcapping", None)  # Gemma
        if softcap:
            logits = torch.tanh(logits / softcap) * softcap
        return logits

    @contextmanager
    def adapter_off(self) -> Iterator[None]:
        """The base model, for the time of the block."""
        with self.model.disable_adapter():
            yield

    # the adapter ----------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """What training changes: the adapter's weights."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def save(self, folder: str | Path) -> None:
        """Writes the adapter in peft's format, and the tokenizer beside it."""
        # False, or peft asks a hub whether the vocabulary has grown; LoRA does not touch the embeddings.
        self.model.save_pretrained(str(folder), save_embedding_layers=False)
        self.tokenizer.save_pretrained(str(folder))

    # inside ---------------------------------------------------------------------------------------------------------

    def _check_context(self, prompt_tokens: int, new_tokens: int) -> None:
        limit = getattr(self.causal_lm.config, "max_position_embeddings", None)
        if limit is not None and prompt_tokens + new_tokens > limit:
            raise PolicyError(
                f"a prompt of {prompt_tokens} tokens and {new_tokens} new ones do not fit the model's {limit} positions: "
                "shorten the task or lower rollout.max_new_tokens"
            )

    def _decode(self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: DynamicCache | None = None) -> Tensor:
        extra = {"use_cache": False} if cache is None else {self._cache_argument: cache, "use_cache": True}
        out = self.decoder(input_ids=ids, attention_mask=mask, position_ids=positions, **extra)
        return out.last_hidden_state

    def _packed_hidden(self, prompt: Sequence[int], responses: Sequence[Sequence[int]]) -> Tensor:
        p = len(prompt)
        # A response's last token predicts nothing that is asked for, so it is not fed.
        fed = [list(r[:-1]) for r in responses]
        ids = torch.tensor([[*prompt, *(token for r in fed for token in r)]], device=self.device)  # (1, L)
        owner = torch.tensor([-1] * p + [i for i, r in enumerate(fed) for _ in r], device=self.device)  # (L,)
        positions = torch.tensor([*range(p), *(p + j for r in fed for j in range(len(r)))], device=self.device)
        order = torch.arange(len(owner), device=self.device)
        sees = (owner[None] == -1) | (owner[None] == owner[:, None])
        sees &= order[None] <= order[:, None]
        mask = torch.zeros(sees.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~sees, torch.finfo(self.dtype).min)
        states = self._decode(ids, mask[None, None], positions[None])[0]  # (L, H)
        where, start = [], p
        for r in fed:  # the prompt's last position predicts every response's first token
            where += [p - 1, *range(start, start + len(r))]
            start += len(r)
        return states[torch.tensor(where, device=self.device)]

    def _plain_hidden(self, prompt: Sequence[int], responses: Sequence[Sequence[int]]) -> Tensor:
        rows = [[*prompt, *r[:-1]] for r in responses]
        ids, mask = _pad(rows, pad_left=False, device=self.device)
        positions = torch.arange(ids.shape[1], device=self.device).expand_as(ids)
        states = self._decode(ids, mask, positions)  # (G, L, H)
        start = len(prompt) - 1
        return torch.cat([states[g, start : start + len(r)] for g, r in enumerate(responses)])

    @torch.no_grad()
    def _packing_works(self, prompt: Sequence[int], responses: Sequence[Sequence[int]]) -> bool:
        """Whether the packed row gives the plain path's log-probabilities, within the dtype's rounding."""
        training = self.model.training
        self.model.eval()
        try:
            plain = torch.log_softmax(self.head(self._plain_hidden(prompt, responses)).float(), -1)
            packed = torch.log_softmax(self.head(self._packed_hidden(prompt, responses)).float(), -1)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            logger.warning("packing is off: this model's attention takes no custom mask (%s)", error)
            return False
        finally:
            self.model.train(training)
        apart = float((plain.exp() * (plain - packed).abs()).sum(-1).mean())  # nats, as the plain path weighs them
        limit = 0.05 if self.dtype in (torch.bfloat16, torch.float16) else 1e-3
        if apart > limit:
            logger.warning(
                "packing is off: packed and plain log-probabilities differ by %.3g nats on average (limit %.3g); "
                "this model's attention does not keep to the mask that it is given",
                apart,
                limit,
            )
        return apart <= limit

    @torch.no_grad()
    def _check_head(self) -> None:
        ids = torch.arange(4, device=self.device)[None] % self.lm_head.weight.shape[0]
        training = self.model.training
        self.model.eval()
        expected = self.causal_lm(input_ids=ids, use_cache=False).logits.float()
        got = self.head(self._decode(ids, None, torch.arange(4, device=self.device)[None])).float()
        self.model.train(training)
        scale = float(expected.abs().max()) + 1e-6
        if not torch.allclose(got, expected, rtol=0.02, atol=0.02 * scale):
            raise PolicyError(
                f"{type(self.causal_lm).__name__} does more to its hidden states than its output layer: "
                "its logits cannot be computed in tiles. Llama, Qwen, SmolLM, Mistral, Gemma and Granite models can."
            )


def _tools_format(template: Any) -> str | None:
    """The format (`mrtpo_envs.tool_calls.FORMATS`) in which a chat template asks for tool calls; None where it shows no
    tools, or asks for a way of its own."""
    text = "\n".join(map(str, template.values())) if isinstance(template, dict) else str(template or "")
    if "tools" not in text or "<function=" in text:
        return None
    if "[TOOL_CALLS]" in text:
        return "mistral"
    if "<tool_call>" in text and "arguments" in text:
        return "hermes"
    return "llama3_json" if "parameters" in text and "<|eot_id|>" in text else None


def _eos_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends a response: the generation config's, which may be several, or else the tokenizer's."""
    ids = getattr(model.generation_config, "eos_token_id", None)
    if ids is None:
        ids = tokenizer.eos_token_id
    if ids is None:
        raise PolicyError("neither the model's generation config nor its tokenizer names an end token")
    return [int(ids)] if isinstance(ids, int) else [int(i) for i in ids]


def _pad(rows: Sequence[Sequence[int]], *, pad_left: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows as one (rows, longest) tensor, and the mask of what is real. The pad id is never looked at: 0 will do."""
    longest = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        at = slice(longest - len(row), longest) if pad_left else slice(0, len(row))
        ids[i, at] = torch.tensor(row, dtype=torch.long)
        mask[i, at] = 1
    return ids.to(device), mask.to(device)


def _uniform(seed: int, group_size: int, length: int) -> Tensor:
    """(G, T) uniform numbers. Token t of response g depends on the seed, g and t alone: not on how many are drawn."""
    rows = []
    for g in range(group_size):
        generator = torch.Generator().manual_seed((seed * 1_000_003 + g) % (2**63))
        rows.append(torch.rand(length, generator=generator))
    return torch.stack(rows)


def _draw(logits_rv: Tensor, uniform_r: Tensor, temperature: float) -> Tensor:
    """One token a row, by inverting the cumulative distribution at `uniform_r`."""
    probability_rv = torch.softmax(logits_rv.to(torch.promote_types(logits_rv.dtype, torch.float32)) / temperature, -1)
    cumulative_rv = probability_rv.cumsum(-1)
    target_r = uniform_r.to(cumulative_rv.dtype) * cumulative_rv[:, -1]  # the sum is 1 but for rounding
    token_r = torch.searchsorted(cumulative_rv, target_r[:, None], right=True).squeeze(-1)
    return token_r.clamp_(max=logits_rv.shape[-1] - 1)
