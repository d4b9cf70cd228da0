"""Features of a config for cost models: of its knobs, or of its program."""

from .base import Columns, Features
from .extractors import FEATURES, make_features
from .knob import KnobFeatures
from .program import STORE_WIDTH, ProgramFeatures, ScheduledFeatures, StoreFeatures, extracted_by

__all__ = [
    "FEATURES",
    "STORE_WIDTH",
    "Columns",
    "Features",
    "KnobFeatures",
    "ProgramFeatures",
    "ScheduledFeatures",
    "StoreFeatures",
    "extracted_by",
    "make_features",
]
