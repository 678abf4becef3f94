"""Warm-up: supervised steps on the tasks' own solutions.

Where no sample ever meets a reward, every reward is dead and nothing is learnt. A few steps of ordinary fine-tuning show
the policy the form of an answer; the adapter that comes out is where training goes on from (`policy.adapter`). The
tasks come from the train split, in the order of the seed; held-out tasks are never shown.

The run folder is the same as training's, and a stopped warm-up resumes in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from mrtpo_agent.checkpoint import RunFolder
from mrtpo_agent.config import TrainConfig
from mrtpo_agent.divergence import token_logprobs
from mrtpo_agent.interrupt import defer_interrupt
from mrtpo_agent.policy import Policy
from mrtpo_agent.trainer import tasks_of_step
from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.errors import EnvError

SAVE_EVERY = 20
"""Steps between checkpoints."""


def warm_up(
    policy: Policy,
    env: MultiRewardEnv,
    config: TrainConfig,
    *,
    out: str | Path,
    resume: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> Path:
    """Fine-tunes the policy's adapter on solutions of training tasks.

    Args:
        config: `config.warmup` has the steps, batch size and learning rate; `config.seed` the order of tasks.
        out: run folder.
        resume: go on from the folder's newest checkpoint.
        progress: called with the steps done and the step's loss (nats a token).

    Returns:
        The adapter's folder.

    Raises:
        EnvError: the environment knows no solutions.
        KeyboardInterrupt: on Ctrl-C, once the last finished step has been saved.
    """
    settings, folder = config.warmup, RunFolder(out)
    optimizer = torch.optim.AdamW(policy.parameters, lr=settings.lr, weight_decay=0.0)
    done = 0
    if resume:
        folder.keep_config(config)
        state = folder.restore(policy, optimizer)
        done = 0 if state is None else int(state["step"])
    else:
        folder.start(config)
    policy.model.train()
    try:
        while done < settings.steps:
            start = time.perf_counter()
            loss = _step(policy, env, config, optimizer, done)
            with defer_interrupt():
                optimizer.step()
                done += 1
            folder.log("metrics.jsonl", {"step": done, "loss": loss, "seconds": time.perf_counter() - start})
            if progress is not None:
                progress(done, loss)
            if done % SAVE_EVERY == 0 or done == settings.steps:
                folder.save(done, policy, optimizer, {})
    except KeyboardInterrupt:
        folder.save(done, policy, optimizer, {})
        raise
    return folder.save_adapter(policy)


def _step(
    policy: Policy, env: MultiRewardEnv, config: TrainConfig, optimizer: torch.optim.Optimizer, index: int
) -> float:
    """Gradients of one batch's mean negative log-likelihood, clipped. Returns that mean."""
    tasks = tasks_of_step(env, config.seed, index, config.warmup.batch_size)
    pairs = []
    for task in tasks:
        solution = env.solution(task)
        if solution is None:
            raise EnvError(
                f"{type(env).__name__} knows no solution of task {task.id!r}: warm-up needs an environment whose "
                "`solution(task)` gives a response that earns full reward"
            )
        prompt = policy.encode(task.prompt)
        pairs.append((prompt, [*policy.tokenizer(solution, add_special_tokens=False)["input_ids"], policy.eos_ids[0]]))
    tokens = sum(len(response) for _, response in pairs)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for prompt, response in pairs:
        hidden = policy.hidden(prompt, [response])
        target = torch.tensor(response, device=policy.device)
        loss = -token_logprobs(hidden, target, policy.head).sum() / tokens
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(policy.parameters, config.optim.max_grad_norm)
    return total
