"""The contracts as checks, for the author of a policy, space or cost model.

``searchlab check policy acme_policies:Bandit`` runs them on the command line, the classes of
:mod:`searchlab.conformance.pytest` in a test suite, and the functions here anywhere::

    for check in policy_checks("acme_policies:Bandit"):
        check()  # raises CheckFailed

A plug-in is given as a registered name, as ``"module:Class"``, as ``{"name": ..., "options": {...}}`` or as a class.
"""

from .check import Check, CheckFailed, NotApplicable, Outcome, run_checks, selected
from .checks import cost_model_checks, policy_checks, space_checks

__all__ = [
    "Check",
    "CheckFailed",
    "NotApplicable",
    "Outcome",
    "cost_model_checks",
    "policy_checks",
    "run_checks",
    "selected",
    "space_checks",
]
