"""Features of a config for cost models: of its knobs, or of its program."""

from .base import Columns, Features, laid_out, widened
from .extractors import FEATURES, make_features
from .knob import KnobFeatures
from .loop import CurveFeatures, ItervarFeatures
from .program import KEPT, STORE_WIDTH, ProgramFeatures, ScheduledFeatures, StoreFeatures, extracted_by

__all__ = [
    "FEATURES",
    "KEPT",
    "STORE_WIDTH",
    "Columns",
    "CurveFeatures",
    "Features",
    "ItervarFeatures",
    "KnobFeatures",
    "ProgramFeatures",
    "ScheduledFeatures",
    "StoreFeatures",
    "extracted_by",
    "laid_out",
    "make_features",
    "widened",
]
