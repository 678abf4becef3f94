"""A task that a tiny random model can learn something from, for the tests of the trainer."""

from mrtpo_agent.config import EvalConfig, OptimConfig, RolloutConfig, TrainConfig
from mrtpo_envs import Evidence, MultiRewardEnv, Prompt, Segment, Span, Task, TaskSet, Verdict, Verifier


class Has(Verifier):
    """The share of the response's first six characters that are in a set: dense, so that random text varies."""

    def __init__(self, characters, name, weight=1.0):
        self.characters, self.name, self.weight = characters, name, weight

    def statement(self, task):
        return f" Use {self.characters[:3]}."

    def check(self, task, response):
        hits = [i for i, c in enumerate(response) if c in self.characters]
        evidence = tuple(Span(i, i + 1) for i in hits) or Evidence.ABSENT
        return Verdict(min(1.0, len(hits) / 6), f"{len(hits)} of them", evidence)


class Short(Verifier):
    """Known by its reference alone."""

    name = "short"

    def reference(self, task):
        return f"at most {task.privileged['limit']} characters"

    def check(self, task, response):
        return Verdict(float(len(response) <= task.privileged["limit"]), f"{len(response)} characters")


class Dead(Verifier):
    """Always the same."""

    name = "dead"

    def reference(self, task):
        return "anything"

    def check(self, task, response):
        return Verdict(1.0, "fine")


LOW, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789!#$%&()*+,-./"


def make_task(index, verifiers=None):
    verifiers = verifiers or (Has(LOW, "low"), Has(DIGITS, "digits", 0.5), Short(), Dead())
    stated = [Segment(v.statement(None), v.name) for v in verifiers if isinstance(v, Has)]
    return Task(Prompt.user(f"Task {index}.", *stated), verifiers, id=f"t{index}", privileged={"limit": 9})


def make_env(verifiers=None, **options):
    train = TaskSet(lambda i: make_task(i, verifiers), 12)
    return MultiRewardEnv(train, TaskSet(lambda i: make_task(100 + i, verifiers), 6), **options)


def settings(**changes):
    base = {
        "steps": 3,
        "rollout": RolloutConfig(prompts_per_step=2, group_size=4, max_new_tokens=10),
        "evaluation": EvalConfig(tasks=3),
        "optim": OptimConfig(lr=1e-3, warmup_steps=0),
        "save_every": 1,
        "log_rollouts_every": 1,
    }
    return TrainConfig(**(base | changes))
