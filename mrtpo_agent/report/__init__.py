"""Pictures of a run: held-out pass rates before and after, the rewards over time, and where relevance was."""

from mrtpo_agent.report.pictures import draw_run

__all__ = ["draw_run"]
