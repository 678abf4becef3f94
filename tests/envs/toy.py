"""One configurable environment for the tests of the shell."""

from mrtpo_envs import Evidence, MultiRewardEnv, Prompt, Segment, Span, Task, TaskSet, Verdict, Verifier


class Mentions(Verifier):
    """The response mentions a word that the prompt asks for."""

    def __init__(self, word="sun", name="mentions"):
        self.word, self.name = word, name

    def statement(self, task):
        return f"Mention the {self.word}."

    def check(self, task, response):
        at = response.find(self.word)
        if at < 0:
            return Verdict(0.0, f"no {self.word}", Evidence.ABSENT)
        return Verdict(1.0, f"{self.word} at {at}", (Span(at, at + len(self.word)),))


class Equals(Verifier):
    """The response is the gold answer, which nobody shows the policy."""

    name = "equals"
    reward_range = (-1.0, 2.0)
    weight = 0.5

    def reference(self, task):
        return f"The answer is {task.privileged['answer']}."

    def check(self, task, response):
        return Verdict(2.0 if response == task.privileged["answer"] else -1.0, f"{len(response)} characters")


class Does(Verifier):
    """Does what it is told when it checks."""

    name = "does"

    def __init__(self, check, **attributes):
        self._check = check
        for name, value in attributes.items():
            setattr(self, name, value)

    def reference(self, task):
        return "something"

    def check(self, task, response):
        return self._check(response)


def make_task(index=0, verifiers=None):
    verifiers = verifiers or (Mentions(), Equals())
    stated = [Segment(" Mention the sun.", v.name) for v in verifiers if isinstance(v, Mentions)]
    return Task(
        Prompt.user(f"Say something, number {index}.", *stated),
        tuple(verifiers),
        id=f"toy-{index}",
        privileged={"answer": f"gold-answer-{index}"},
    )


def make_env(verifiers=None, size=10, **options):
    train = TaskSet(lambda i: make_task(i, verifiers), size)
    test = TaskSet(lambda i: make_task(1000 + i, verifiers), size)
    return MultiRewardEnv(train, test, **options)


def needs_no_argument():
    return make_env()
