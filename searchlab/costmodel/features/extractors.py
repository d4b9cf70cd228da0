"""The feature extractors by name."""

from __future__ import annotations

from ...errors import SearchlabError, UnsupportedSpace, did_you_mean
from ...space import Space
from .base import Features
from .knob import AutoTVMKnobFeatures, KnobFeatures
from .loop import CurveFeatures, ItervarFeatures
from .program import PerStoreFeatures, ProgramFeatures, ScheduledFeatures

FEATURES: dict[str, type[Features]] = {
    kind.name: kind
    for kind in (KnobFeatures, AutoTVMKnobFeatures, ProgramFeatures, PerStoreFeatures, ItervarFeatures, CurveFeatures)
}


def make_features(name: str, space: Space) -> Features:
    """The features called ``name`` of configs of ``space``. Raises SearchlabError if there are none.

    Raises UnsupportedSpace for features of programs in a space that has no programs.
    """
    if name not in FEATURES:
        raise SearchlabError(f"unknown features {name!r}{did_you_mean(name, FEATURES)}")
    if issubclass(FEATURES[name], ScheduledFeatures) and not space.has_programs:
        raise UnsupportedSpace(
            f"the features {name!r} are of programs, and the configs of {space.workload} have none; use knob"
        )
    return FEATURES[name](space)
