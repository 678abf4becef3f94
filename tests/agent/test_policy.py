"""The policy's promises: one forward pass that is right however it is packed, and samples that a seed decides."""

import pytest
import torch
from agent_models import make_model, make_policy, make_tokenizer

from mrtpo_agent.policy import Policy
from mrtpo_envs import Message, PolicyError, Prompt, Segment

PROMPT = [5, 9, 40, 77, 12]
RESPONSES = [[30, 31, 32, 2], [60], [99, 98, 97, 96, 95, 94, 2], [44, 45, 2]]
ROUNDING = 1e-6
"""transformers computes norms and rotations in float32 even for a float64 model."""


def reference_logprobs(policy, prompt, response):
    """One response alone, through the whole causal LM."""
    ids = torch.tensor([[*prompt, *response]])
    logits = policy.causal_lm(input_ids=ids, use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits, -1)
    return torch.stack([logprobs[len(prompt) - 1 + t, token] for t, token in enumerate(response)])


def logprobs(policy, prompt, responses):
    target = torch.tensor([t for r in responses for t in r])
    return torch.log_softmax(policy.head(policy.hidden(prompt, responses)), -1).gather(-1, target[:, None])[:, 0]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral", "granite", "gemma2"])
@pytest.mark.parametrize("packing", ["on", "off"])
def test_logprobs_do_not_depend_on_packing_padding_or_company(family, packing):
    policy = make_policy(family, packing=packing)
    got = logprobs(policy, PROMPT, RESPONSES)
    alone = torch.cat([reference_logprobs(policy, PROMPT, r) for r in RESPONSES])
    torch.testing.assert_close(got, alone, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_gradients_do_not_depend_on_packing(family):
    gradients = []
    for packing in ("on", "off"):
        policy = make_policy(family, packing=packing)
        weight = torch.linspace(-1, 1, sum(map(len, RESPONSES)), dtype=torch.float64)
        (logprobs(policy, PROMPT, RESPONSES) * weight).sum().backward()
        gradients.append([p.grad for p in policy.parameters])
    for on, off in zip(*gradients, strict=True):
        torch.testing.assert_close(on, off, rtol=1e-3, atol=10 * ROUNDING)


def test_auto_packing_finds_out_that_a_sliding_window_cannot_be_packed():
    policy = make_policy("mistral", sliding_window=4)
    with torch.no_grad():
        got = logprobs(policy, PROMPT, RESPONSES)
    assert policy.packed is False
    alone = torch.cat([reference_logprobs(policy, PROMPT, r) for r in RESPONSES])
    torch.testing.assert_close(got, alone.detach(), rtol=0, atol=ROUNDING)


def test_auto_packing_packs_a_llama(policy):
    policy.hidden(PROMPT, RESPONSES)
    assert policy.packed is True


def test_the_adapter_can_be_switched_off(policy):
    with torch.no_grad():
        adapted = logprobs(policy, PROMPT, RESPONSES)
        with policy.adapter_off():
            base = logprobs(policy, PROMPT, RESPONSES)
    model, _ = make_model()
    bare = torch.log_softmax(model(torch.tensor([[*PROMPT, *RESPONSES[1]]])).logits[0, -2], -1)[RESPONSES[1][0]]
    assert not torch.allclose(adapted, base)
    torch.testing.assert_close(base[len(RESPONSES[0])], bare.detach(), rtol=0, atol=ROUNDING)


def test_a_seed_gives_the_same_samples_whatever_else_is_in_the_batch(policy):
    settings = {"group_size": 3, "max_new_tokens": 12}
    both = policy.sample([PROMPT, PROMPT[:2]], seeds=[1, 2], **settings)
    one = policy.sample([PROMPT[:2]], seeds=[2], **settings)
    longer = policy.sample([PROMPT[:2]], seeds=[2], group_size=3, max_new_tokens=5)
    assert both[1] == one[0]
    assert [r.ids[:5] for r in one[0]] == [r.ids for r in longer[0]]
    assert both != policy.sample([PROMPT, PROMPT[:2]], seeds=[3, 2], **settings)
    assert len({r.ids for r in both[0]}) == 3


def test_samples_follow_the_models_distribution():
    policy = make_policy(seed=3)
    with torch.no_grad():
        expected = torch.softmax(policy.head(policy.hidden(PROMPT, [[5]]))[0] / 0.7, -1)
    drawn = policy.sample([PROMPT], seeds=[0], group_size=4000, max_new_tokens=1, temperature=0.7)[0]
    counts = torch.bincount(torch.tensor([r.ids[0] for r in drawn]), minlength=len(expected)).double()
    chi2 = ((counts - 4000 * expected) ** 2 / (4000 * expected).clamp(min=1e-9))[4000 * expected > 5].sum()
    assert chi2 < 2 * (4000 * expected > 5).sum()


def test_greedy_in_the_limit_agrees_with_generate(policy):
    ids = torch.tensor([PROMPT])
    expected = policy.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=10, pad_token_id=0
    )[0, len(PROMPT) :].tolist()
    # the second prompt is shorter: left padding and positions must not show
    got = policy.sample([PROMPT, [7, 8]], seeds=[0, 0], group_size=2, max_new_tokens=10, temperature=1e-6)
    assert list(got[0][0].ids) == expected[: len(got[0][0].ids)]
    assert got[0][0] == got[0][1]


def test_every_end_token_ends_a_response_and_the_limit_is_told():
    policy = make_policy()
    first = policy.sample([PROMPT], seeds=[4], group_size=1, max_new_tokens=8, ignore_eos=True)[0][0]
    assert len(first.ids) == 8
    assert first.truncated
    policy.eos_ids = [999_999 % 250, first.ids[3]]
    again = policy.sample([PROMPT], seeds=[4], group_size=1, max_new_tokens=8)[0][0]
    assert again.ids == first.ids[: first.ids.index(first.ids[3]) + 1]
    assert not again.truncated


def test_the_generation_configs_end_tokens_are_all_honoured():
    model, tokenizer = make_model()
    model.generation_config.eos_token_id = [2, 7]
    from peft import LoraConfig, get_peft_model

    policy = Policy(get_peft_model(model, LoraConfig(r=2, target_modules="all-linear")), tokenizer)
    assert policy.eos_ids == [2, 7]


def test_a_tokenizer_without_a_chat_template_is_refused():
    policy = make_policy()
    with pytest.raises(PolicyError, match="no chat template"):
        Policy(policy.model, make_tokenizer(template=None))


def test_feedback_goes_in_without_touching_the_sampled_tokens(policy):
    chat = Prompt.user("Sum 2 and 2.")
    before = policy.encode(chat)
    answer = policy.tokenizer("five")["input_ids"]
    end = policy.eos_ids
    whole = policy.encode(chat.continued("five", "No. Try again."))
    ended = policy.encode_feedback(chat, "No. Try again.", ended=True)
    cut = policy.encode_feedback(chat, "No. Try again.", ended=False)
    assert [*before, *answer, *end, *ended] == whole
    assert [*before, *answer, *cut] == whole


@pytest.mark.parametrize("text", ["plain", "tab\tand\nline", "naïve 中 😀 text", "lone \ud83d half"])
def test_any_text_can_be_encoded(policy, text):
    ids = policy.encode(Prompt.user(text))
    assert text.encode("utf-8", "replace").decode() in policy.tokenizer.decode(ids)


def test_what_does_not_fit_the_model_is_told(policy):
    with pytest.raises(PolicyError, match="500 tokens and 20 new ones do not fit the model's 512 positions"):
        policy.sample([[5] * 500], seeds=[0], group_size=1, max_new_tokens=20)


def test_empty_prompts_and_responses_are_refused(policy):
    with pytest.raises(PolicyError, match="at least one token"):
        policy.hidden([], [[1]])
    with pytest.raises(PolicyError, match="at least one token"):
        policy.hidden([1], [[1], []])


HERMES = (
    "{% if tools %}<tools>{% for t in tools %}{{ t.function.name }} {% endfor %}</tools> <tool_call> arguments\n"
    "{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "format", "by_template"),
    [(HERMES, "hermes", True), (HERMES, "json", False), (HERMES, "", True), ("plain", "hermes", False)],
)
def test_tools_are_shown_once_by_the_template_or_by_the_prompt(policy, template, format, by_template):
    tool = {"type": "function", "function": {"name": "frobnicate", "parameters": {}}}
    shown = Segment("You have frobnicate.\n", template_tools=True)
    prompt = Prompt((Message("user", (shown, Segment("Do it."))),), (tool,), tools_format=format)
    tokenizer = make_tokenizer() if template == "plain" else make_tokenizer(template=template)
    text = tokenizer.decode(Policy(policy.model, tokenizer).encode(prompt))
    assert text.count("frobnicate") == 1
    assert ("You have" in text) is not by_template
    assert "Do it." in text
