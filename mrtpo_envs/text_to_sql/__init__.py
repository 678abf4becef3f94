"""Text-to-SQL by execution on real SQLite databases, with untrusted queries in processes of their own."""

from mrtpo_envs.text_to_sql.env import TextToSQLEnv
from mrtpo_envs.text_to_sql.flights import flights_database, flights_tasks
from mrtpo_envs.text_to_sql.generator import LEVELS, TaskGenerator
from mrtpo_envs.text_to_sql.load import load_bird, load_questions, load_spider, load_wikisql
from mrtpo_envs.text_to_sql.pool import Limits
from mrtpo_envs.text_to_sql.questions import Questions, Record
from mrtpo_envs.text_to_sql.sources import SOURCES
from mrtpo_envs.text_to_sql.spider_questions import spider_dev, spider_synthetic
from mrtpo_envs.text_to_sql.tasks import make_task, solution
from mrtpo_envs.text_to_sql.verifiers import REWARDS

__all__ = [
    "LEVELS",
    "REWARDS",
    "SOURCES",
    "Limits",
    "Questions",
    "Record",
    "TaskGenerator",
    "TextToSQLEnv",
    "flights_database",
    "flights_tasks",
    "load_bird",
    "load_questions",
    "load_spider",
    "load_wikisql",
    "make_task",
    "solution",
    "spider_dev",
    "spider_synthetic",
]
