"""Features of a config for cost models: of its knobs, or of its program."""

from .base import Columns, Features, laid_out, widened
from .extractors import FEATURES, make_features
from .knob import KnobFeatures
from .loop import CurveFeatures, ItervarFeatures
from .program import COLUMNS_PER_STORE, KEPT, PerStoreFeatures, ProgramFeatures, ScheduledFeatures, extracted_by

__all__ = [
    "COLUMNS_PER_STORE",
    "FEATURES",
    "KEPT",
    "Columns",
    "CurveFeatures",
    "Features",
    "ItervarFeatures",
    "KnobFeatures",
    "PerStoreFeatures",
    "ProgramFeatures",
    "ScheduledFeatures",
    "extracted_by",
    "laid_out",
    "make_features",
    "widened",
]
