"""Cost models: the contract, and the surrogate that binds one to a space and a feature extractor."""

from .contract import COST_MODELS, Array, CostModel, Groups, make_cost_model
from .store import load, save
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
    "load",
    "make_cost_model",
    "save",
    "scores_of",
]
