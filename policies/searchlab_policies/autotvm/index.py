"""AutoTVM's RandomTuner and GridSearchTuner (``python/tvm/autotvm/tuner/index_based_tuner.py``, TVM 0.17)."""

from __future__ import annotations

from typing import ClassVar

from searchlab.policy import Origin

from ..grid import Grid
from ..random import Random

SOURCE = "python/tvm/autotvm/tuner/index_based_tuner.py"


class AutoTVMRandom(Random):
    """AutoTVM's RandomTuner: the policy ``random`` under the name that AutoTVM's users know."""

    origin: ClassVar[Origin | None] = Origin(
        name="AutoTVM's RandomTuner",
        version="TVM 0.17",
        source=SOURCE,
        kind="reproduction",
        deviations=("if knobs depend on each other, each knob is drawn uniformly, not each config",),
    )


class AutoTVMGrid(Grid):
    """AutoTVM's GridSearchTuner: all configs by index, with the first knob varying fastest."""

    origin: ClassVar[Origin | None] = Origin(
        name="AutoTVM's GridSearchTuner",
        version="TVM 0.17",
        source=SOURCE,
        kind="reproduction",
        deviations=("in a space without an index, the last knob varies fastest",),
    )
