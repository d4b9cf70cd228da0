"""Searching the options of a policy on recorded tables, and showing on workloads held out whether they are better.

Each set of options is tried in replays: runs of the policy on a table, as a study makes them. Its worth is the score of
these runs against random search (see :class:`~searchlab.analysis.stats.random_search.RandomSearch`), which is
comparable between problems.
A problem is a workload in a space, with the measurements of a table.
"""

from .model import Hypertuned
from .plan import HyperPlan, plan_hypertune

__all__ = ["HyperPlan", "Hypertuned", "plan_hypertune"]
