"""Search the options of a policy on recorded tables, and show on held-out workloads whether they are better.

Each set of options is tried in replays: runs of the policy on a table, as a study makes them. Options are judged by
the score of these runs against random search (:class:`~searchlab.analysis.stats.random_search.RandomSearch`), which is
comparable between problems. A problem is a workload in a space, with the measurements of a table.
"""

from .plan import HyperPlan, Hypertuned, plan_hypertune

__all__ = ["HyperPlan", "Hypertuned", "plan_hypertune"]
