"""Tool calls, checked by schema, by name and by value."""

from mrtpo_envs.tool_calls.env import ToolCallsEnv
from mrtpo_envs.tool_calls.expected import Expected
from mrtpo_envs.tool_calls.formats import FORMATS, Call, Calls, find_calls
from mrtpo_envs.tool_calls.generator import KINDS, TaskGenerator
from mrtpo_envs.tool_calls.load import load_api_bank, load_toolace, load_toolrl, load_xlam
from mrtpo_envs.tool_calls.load_bfcl import load_bfcl
from mrtpo_envs.tool_calls.sources import SOURCES
from mrtpo_envs.tool_calls.tasks import REWARDS, SETS, make_task, solution

__all__ = [
    "FORMATS",
    "KINDS",
    "REWARDS",
    "SETS",
    "SOURCES",
    "Call",
    "Calls",
    "Expected",
    "TaskGenerator",
    "ToolCallsEnv",
    "find_calls",
    "load_api_bank",
    "load_bfcl",
    "load_toolace",
    "load_toolrl",
    "load_xlam",
    "make_task",
    "solution",
]
