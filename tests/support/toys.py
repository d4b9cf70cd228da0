"""The toy spaces and made-up costs of the conformance kit, which tests of searchlab itself use by shorter names."""

from searchlab.conformance.toys import (
    TARGET,
    WORKLOAD,
    Dependent,
    Large,
    NoKnobs,
    SimulateFunction,
    SingleChoice,
    Small,
    failed_measurement,
    successful_measurement,
    trials_of,
)
from searchlab.conformance.toys import (
    list_tiles as tiles,
)
from searchlab.conformance.toys import (
    run_policy as run,
)
from searchlab.conformance.toys import (
    simulate_equal as all_equal,
)
from searchlab.conformance.toys import (
    simulate_flaky as flaky,
)
from searchlab.conformance.toys import (
    simulate_invalid as all_invalid,
)
from searchlab.conformance.toys import (
    simulate_smooth as smooth,
)

__all__ = [
    "TARGET",
    "WORKLOAD",
    "Dependent",
    "Large",
    "NoKnobs",
    "SimulateFunction",
    "SingleChoice",
    "Small",
    "all_equal",
    "all_invalid",
    "failed_measurement",
    "flaky",
    "run",
    "smooth",
    "successful_measurement",
    "tiles",
    "trials_of",
]
