"""Templates in the way of AutoTVM: schedules by hand whose numbers are knobs."""

from .knobs import TemplateConfig
from .registry import template
from .space import KnobTemplate

__all__ = ["KnobTemplate", "TemplateConfig", "template"]
