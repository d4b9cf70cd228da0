"""The feature extractors by name."""

from __future__ import annotations

from ...errors import SearchlabError, did_you_mean
from ...space import Space
from .base import Features
from .knob import AutoTVMKnobFeatures, KnobFeatures
from .loop import CurveFeatures, ItervarFeatures
from .program import ProgramFeatures, StoreFeatures

FEATURES: dict[str, type[Features]] = {
    kind.name: kind
    for kind in (KnobFeatures, AutoTVMKnobFeatures, ProgramFeatures, StoreFeatures, ItervarFeatures, CurveFeatures)
}


def make_features(name: str, space: Space) -> Features:
    """The features called ``name`` of configs of ``space``. Raises SearchlabError if there are none."""
    if name not in FEATURES:
        raise SearchlabError(f"unknown features {name!r}{did_you_mean(name, FEATURES)}")
    return FEATURES[name](space)
