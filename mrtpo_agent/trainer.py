"""Training: one step is one straight line.

    tasks ─> rollouts and verdicts ─> advantages per reward ─> (replay ─> divergence ─> relevance) ─> credit ─> loss

`Trainer(env, policy, config)` takes any `MultiRewardEnv` and any `Policy`. The update goes group by group, so that one
packed forward pass gives the loss its log-probabilities and the replay its plain side, and no more than one group's
activations are alive. Gradients add up over the groups; there is one optimiser step a batch.

All randomness comes from the seed and the step's number, so a resumed run takes the steps that it would have taken.
One process and one device: for several GPUs, start one run on each.

    b group of the batch, g response of the group, k reward, h hidden size
    n sampled token, flat over the group's responses (tokens that the environment wrote are not among them)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mrtpo_agent.advantages import GroupAdvantages, gdpo_advantages, grpo_advantages, live_rewards
from mrtpo_agent.checkpoint import RunFolder
from mrtpo_agent.clock import Clock
from mrtpo_agent.config import TrainConfig
from mrtpo_agent.credit import Credit, assign_credit
from mrtpo_agent.divergence import token_logprobs
from mrtpo_agent.evaluation import Evaluation, evaluate_as_configured
from mrtpo_agent.interrupt import defer_interrupt
from mrtpo_agent.loss import LossStats, policy_loss
from mrtpo_agent.policy import Policy
from mrtpo_agent.progress import Progress
from mrtpo_agent.records import rollout_records, step_record
from mrtpo_agent.relevance import relevance_of
from mrtpo_agent.rollout import Group, collect
from mrtpo_agent.trackers import Trackers
from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.errors import EnvError, RunError
from mrtpo_envs.task import Task


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to."""

    steps: int
    """Steps taken in all, resumed ones included."""
    before: Evaluation | None
    """Held-out evaluation of the policy at the start; None where evaluation is off."""
    after: Evaluation | None
    """The same tasks and random numbers at the end."""
    folder: Path | None
    """The run folder, or None where nothing was written."""


@dataclass(slots=True)
class _Trained:
    """What one group's update needs more than once."""

    group: Group
    advantages: GroupAdvantages
    credit: Credit | None = None
    old_logprob_n: Tensor | None = None


class Trainer:
    """Trains `policy` in `env`.

    Args:
        env: any environment that keeps `MultiRewardEnv`'s contract.
        policy: see `loading.load_policy`.
        config: the run's settings; `config.env` and `config.policy` describe what `env` and `policy` were made from and
            are only written down here.
        out: folder for checkpoints, logs and the trained adapter; nothing is written where None.
        progress: shows how it goes.

    Raises:
        EnvError: `env` is no `MultiRewardEnv`.
    """

    def __init__(
        self,
        env: MultiRewardEnv,
        policy: Policy,
        config: TrainConfig | None = None,
        *,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        env = getattr(env, "unwrapped", env)
        if not isinstance(env, MultiRewardEnv):
            raise EnvError(f"Trainer needs a MultiRewardEnv, got {type(env).__name__}")
        self.env = env
        self.policy = policy
        self.config = config or TrainConfig()
        self.folder = None if out is None else RunFolder(out)
        self.progress = progress or Progress()
        optim = self.config.optim
        self.optimizer = torch.optim.AdamW(
            policy.parameters,
            lr=optim.lr,
            betas=optim.betas,
            weight_decay=optim.weight_decay,
            fused=policy.device.type == "cuda",
        )
        self.steps_done = 0
        self.skipped = 0
        """Groups and steps left out so far because a loss or gradient was not finite."""

    # the run --------------------------------------------------------------------------------------------------------

    def train(self, *, resume: bool = False) -> TrainResult:
        """Trains for `config.steps` steps, with an evaluation before and after.

        Args:
            resume: go on from the newest checkpoint of the run folder.

        Raises:
            KeyboardInterrupt: on Ctrl-C, once the last finished step has been saved.
            RunError: the run folder cannot be written, or holds another run; earlier checkpoints stay whole.
        """
        config = self.config
        before = self._open(resume)
        trackers = Trackers(config, None if self.folder is None else self.folder.path)
        self.progress.start(config, self.steps_done)
        try:
            if before is None and config.evaluation.tasks:
                before = self._evaluate(trackers)
            after = self._evaluated_at(self.steps_done) if self.steps_done else before
            while self.steps_done < config.steps:
                _, record = self.step(self.steps_done)
                self._note(record, trackers)
                if self.steps_done == config.steps or (config.save_every and self.steps_done % config.save_every == 0):
                    self._save()  # before an evaluation, which may be stopped
                every, after = config.evaluation.every, None
                if config.evaluation.tasks and every and self.steps_done % every == 0:
                    after = self._evaluate(trackers)
            if after is None and config.evaluation.tasks:
                after = self._evaluate(trackers)
        except KeyboardInterrupt:
            self._save()
            self.progress.interrupted(self.steps_done, None if self.folder is None else self.folder.path)
            raise
        finally:
            trackers.close()
            self.progress.stop()
        if self.folder is not None:
            self.folder.save_adapter(self.policy)
        result = TrainResult(self.steps_done, before, after, None if self.folder is None else self.folder.path)
        self.progress.finished(result.before, result.after, result.folder)
        return result

    def step(self, index: int) -> tuple[list[Group], dict[str, Any]]:
        """Takes training step `index` (from 0): samples, judges, replays and updates.

        Returns:
            The rollouts, and the step's record as it goes to `metrics.jsonl`.
        """
        config, clock = self.config, Clock()
        self.progress.phase("sample")
        groups = collect(
            self.policy,
            self.env,
            tasks_of_step(self.env, config.seed, index, config.rollout.prompts_per_step),
            group_size=config.rollout.group_size,
            max_new_tokens=config.rollout.max_new_tokens,
            temperature=config.rollout.temperature,
            seeds=[self._seed(index, b) for b in range(config.rollout.prompts_per_step)],
            clock=clock,
        )
        rewards, weights = [g.rewards for g in groups], [g.weights for g in groups]
        normalise = grpo_advantages if config.method == "grpo" else gdpo_advantages
        batch = [_Trained(g, a) for g, a in zip(groups, normalise(rewards, weights), strict=True)]

        lr = self._learning_rate(index)
        for update in range(config.optim.updates_per_batch):
            stats, grad_norm = self._update(batch, lr, index, clock, first=update == 0)
        with defer_interrupt():  # the position moves with the weights, or not at all
            self.steps_done = index + 1
        record = step_record(self.steps_done, groups, stats, clock, lr, grad_norm, self.skipped)
        every = config.log_rollouts_every
        if self.folder is not None and every and index % every == 0:
            for item in rollout_records(self.policy, self.steps_done, groups, [t.credit for t in batch]):
                self.folder.log("rollouts.jsonl", item)
        return groups, record

    # one update -----------------------------------------------------------------------------------------------------

    def _update(
        self, batch: Sequence[_Trained], lr: float, index: int, clock: Clock, *, first: bool
    ) -> tuple[LossStats, float]:
        """One optimiser step on the batch. Returns the loss's statistics and the gradient's norm before clipping."""
        optim = self.config.optim
        tokens = sum(sum(trained.group.lengths) for trained in batch)
        self.optimizer.zero_grad(set_to_none=True)
        stats = LossStats.zero()
        for b, trained in enumerate(batch):
            if not trained.advantages.per_reward_gk.any() and not optim.kl_weight:
                continue  # nothing pulls at this group: every one of its rewards is dead
            loss, part = self._group_loss(trained, tokens, self._seed(index, b), clock, first=first)
            if not bool(torch.isfinite(loss)):
                self.skipped += 1
                continue
            with clock("update"):
                loss.backward()
            stats = stats + part
        return stats, self._optimizer_step(lr, clock)

    def _group_loss(
        self, trained: _Trained, tokens: int, seed: int, clock: Clock, *, first: bool
    ) -> tuple[Tensor, LossStats]:
        """The group's share of the batch's loss, with its graph."""
        policy, optim, temperature = self.policy, self.config.optim, self.config.rollout.temperature
        group = trained.group
        trained_n = torch.tensor(group.trained, device=policy.device)
        target_n = torch.tensor([i for r in group.responses for i in r], device=policy.device)[trained_n]
        policy.model.train()
        self.progress.phase("update")
        with clock("update"):
            hidden_nh = policy.hidden(group.prompt, group.responses)[trained_n]
            logprob_n = token_logprobs(hidden_nh, target_n, policy.head, temperature=temperature)
        if first:
            plain_nh = self._without_dropout(group, trained_n) if policy.has_dropout else hidden_nh.detach()
            trained.credit = self._credit(trained, plain_nh, seed, clock)
            if optim.updates_per_batch > 1:
                trained.old_logprob_n = logprob_n.detach()
        reference_n = None
        if optim.kl_weight:
            with clock("update"), torch.no_grad(), policy.adapter_off():
                base_nh = policy.hidden(group.prompt, group.responses)[trained_n]
                reference_n = token_logprobs(base_nh, target_n, policy.head, temperature=temperature)
        assert trained.credit is not None
        return policy_loss(
            logprob_n,
            None if first else trained.old_logprob_n,
            trained.credit.advantage_n.to(policy.device),
            clip_low=optim.clip_low,
            clip_high=optim.clip_high,
            denominator=tokens,
            ref_logprob=reference_n,
            kl_weight=optim.kl_weight,
        )

    def _credit(self, trained: _Trained, plain_nh: Tensor, seed: int, clock: Clock) -> Credit:
        """Token advantages of a group. A dead reward is not replayed."""
        config, group = self.config, trained.group
        live = live_rewards(group.rewards)
        names = [name for name, ok in zip(group.task.reward_names, live.tolist(), strict=True) if ok]
        relevance: dict[str, Tensor] = {}
        if config.method == "mrtpo" and config.credit.route != "uniform" and names:
            self.progress.phase("replay")
            with clock("replay"):
                relevance = relevance_of(self.policy, group, names, plain_nh, config)
        generator = torch.Generator().manual_seed(seed)
        return assign_credit(
            config.credit, trained.advantages, group.task.reward_names, relevance, group.lengths, generator
        )

    @torch.no_grad()
    def _without_dropout(self, group: Group, trained_n: Tensor) -> Tensor:
        """The plain side of the replay, where the update's own pass is blurred by dropout and the replay's are not."""
        self.policy.model.eval()
        hidden = self.policy.hidden(group.prompt, group.responses)[trained_n]
        self.policy.model.train()
        return hidden

    def _optimizer_step(self, lr: float, clock: Clock) -> float:
        for settings in self.optimizer.param_groups:
            settings["lr"] = lr
        with clock("update"):
            norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters, self.config.optim.max_grad_norm))
            if not math.isfinite(norm):
                self.skipped += 1
                self.optimizer.zero_grad(set_to_none=True)
                return norm
            with defer_interrupt():
                self.optimizer.step()
        return norm

    # what a step is given -------------------------------------------------------------------------------------------

    def _seed(self, index: int, b: int) -> int:
        return (self.config.seed * 1_000_003 + index) * 1009 + b

    def _learning_rate(self, index: int) -> float:
        optim, steps = self.config.optim, self.config.steps
        rise = min(1.0, (index + 1) / (optim.warmup_steps + 1))
        left = 1.0 - max(0, index - optim.warmup_steps) / max(1, steps - optim.warmup_steps)
        fall = {"constant": 1.0, "linear": left, "cosine": 0.5 * (1 + math.cos(math.pi * (1 - left)))}[optim.schedule]
        return optim.lr * rise * fall

    # the run folder -------------------------------------------------------------------------------------------------

    def _open(self, resume: bool) -> Evaluation | None:
        """Starts or resumes the run folder. Returns the evaluation at the start where it has been made already."""
        if self.folder is None:
            if resume:
                raise RunError("there is nothing to resume from: the trainer was given no run folder (out=...)")
            return None
        if not resume:
            self.folder.start(self.config)
            return None
        self.folder.keep_config(self.config)
        state = self.folder.restore(self.policy, self.optimizer)
        if state is not None:
            self.steps_done, self.skipped = state["step"], state["skipped"]
        return self._evaluated_at(0)

    def _evaluated_at(self, step: int) -> Evaluation | None:
        """The evaluation that the run folder has of a step."""
        logged = [] if self.folder is None else self.folder.read("evals.jsonl")
        found = [r["evaluation"] for r in logged if r["step"] == step]
        return Evaluation.from_dict(found[-1]) if found else None

    def _save(self) -> None:
        if self.folder is not None:
            self.folder.save(self.steps_done, self.policy, self.optimizer, {"skipped": self.skipped})

    def _note(self, record: dict[str, Any], trackers: Trackers) -> None:
        if self.folder is not None:
            self.folder.log("metrics.jsonl", record)
        trackers.log(record)
        self.progress.step(record)

    def _evaluate(self, trackers: Trackers) -> Evaluation:
        self.progress.phase("evaluate")
        found = evaluate_as_configured(self.policy, self.env, self.config, self.progress.evaluating)
        record = {"step": self.steps_done, "evaluation": found.to_dict()}
        if self.folder is not None:
            self.folder.log("evals.jsonl", record)
        trackers.log({"step": self.steps_done, "mean_passed": found.mean_passed.mean})
        self.progress.evaluated(self.steps_done, found)
        return found


def tasks_of_step(env: MultiRewardEnv, seed: int, index: int, size: int) -> list[Task]:
    """The tasks of step `index`: the train split in a random order, again and again, each time in another."""
    tasks = env.tasks("train")
    chosen = []
    for position in range(index * size, (index + 1) * size):
        epoch, offset = divmod(position, len(tasks))
        if len(tasks) > 1_000_000:  # a permutation of so many is not worth its memory: draw
            generator = torch.Generator().manual_seed(seed * 1_000_003 + position)
            chosen.append(tasks[int(torch.randint(len(tasks), (1,), generator=generator))])
            continue
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        chosen.append(tasks[int(torch.randperm(len(tasks), generator=generator)[offset])])
    return chosen
