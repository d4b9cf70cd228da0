"""Contract checks for authors of policies, spaces, cost models and workloads.

``searchlab check policy acme_policies:Bandit`` runs the checks on the command line, the classes in
:mod:`searchlab.conformance.pytest` run them in a test suite, and the functions in this package run them anywhere::

    for check in policy_checks("acme_policies:Bandit"):
        check()  # raises CheckFailed

A plug-in is specified by a registered name, ``"module:Class"``, ``{"name": ..., "options": {...}}`` or a class.
"""

from .check import Check, CheckFailed, CheckResult, NotApplicable, run_checks, select
from .costmodels import cost_model_checks
from .policies import policy_checks
from .spaces import space_checks
from .workloads import workload_checks

__all__ = [
    "Check",
    "CheckFailed",
    "CheckResult",
    "NotApplicable",
    "cost_model_checks",
    "policy_checks",
    "run_checks",
    "select",
    "space_checks",
    "workload_checks",
]
