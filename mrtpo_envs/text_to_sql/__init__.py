"""Text-to-SQL by execution on real SQLite databases, with untrusted queries in processes of their own."""

from mrtpo_envs.text_to_sql.env import TextToSQLEnv
from mrtpo_envs.text_to_sql.generator import LEVELS, TaskGenerator
from mrtpo_envs.text_to_sql.pool import Limits
from mrtpo_envs.text_to_sql.tasks import make_task, solution
from mrtpo_envs.text_to_sql.verifiers import REWARDS

__all__ = ["LEVELS", "REWARDS", "Limits", "TaskGenerator", "TextToSQLEnv", "make_task", "solution"]
