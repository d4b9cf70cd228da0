"""Templates, as in AutoTVM: hand-written schedules with open parameters."""

from .knobs import TemplateConfig
from .registry import template
from .space import KnobTemplate

__all__ = ["KnobTemplate", "TemplateConfig", "template"]
