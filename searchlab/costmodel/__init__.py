"""Cost models: the contract, and the surrogate that binds one to a space and a feature extractor."""

from .contract import COST_MODELS, Array, CostModel, Groups, fit_model, make_cost_model, predictions
from .surrogate import OtherTask, Rows, Surrogate, bind, scores_of

__all__ = [
    "COST_MODELS",
    "Array",
    "CostModel",
    "Groups",
    "OtherTask",
    "Rows",
    "Surrogate",
    "bind",
    "fit_model",
    "make_cost_model",
    "predictions",
    "scores_of",
]
