"""Your own task: three rewards, one of them against a gold answer that the policy never sees."""

from mrtpo_agent import PolicyConfig, TrainConfig, Trainer, load_policy
from mrtpo_envs import Evidence, MultiRewardEnv, Prompt, Segment, Span, Task, Verdict, Verifier


class Correct(Verifier):
    name = "correct"

    def reference(self, task):  # what is checked against: shown in the replay only
        return f"the capital is {task.privileged['capital']}."

    def check(self, task, response):
        at = response.find(task.privileged["capital"])
        if at < 0:
            return Verdict(0.0, "another city, or none", Evidence.ABSENT)
        return Verdict(1.0, "the right city", (Span(at, at + len(task.privileged["capital"])),))


class Brief(Verifier):
    name = "brief"

    def statement(self, task):  # what the prompt says: left out in the replay
        return " Use at most twelve words."

    def check(self, task, response):
        n = len(response.split())
        return Verdict(float(0 < n <= 12), f"{n} words")


class Excited(Verifier):
    name = "excited"

    def statement(self, task):
        return " End with an exclamation mark."

    def check(self, task, response):
        end = len(response.rstrip())
        return Verdict(
            float(response.rstrip().endswith("!")), "last mark", (Span(end - 1, end),) if end else Evidence.ABSENT
        )


def make_task(country, capital):
    brief, excited = Brief(), Excited()
    question = f"What is the capital of {country}?"
    prompt = Prompt.user(question, Segment(brief.statement(None), "brief"), Segment(excited.statement(None), "excited"))
    return Task(prompt, (Correct(), brief, excited), id=country, privileged={"capital": capital})


TRAIN = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Spain": "Madrid", "Egypt": "Cairo", "Peru": "Lima"}
TEST = {"Germany": "Berlin", "Greece": "Athens", "Russia": "Moscow", "Cuba": "Havana"}


def make_env():
    return MultiRewardEnv([make_task(*pair) for pair in TRAIN.items()], [make_task(*pair) for pair in TEST.items()])


if __name__ == "__main__":
    result = Trainer(make_env(), load_policy(PolicyConfig()), TrainConfig(steps=10), out="runs/capitals").train()
    print(result.before.mean_passed, "->", result.after.mean_passed)
