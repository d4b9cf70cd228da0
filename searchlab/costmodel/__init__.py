"""Cost models: the contract, and the adapter that binds a model to a space and a feature extractor."""

from .bound import BoundCostModel, OtherTask, TaskData, TrainingData, bind, compute_scores
from .contract import COST_MODELS, CostModel, fit_model, make_cost_model, predict_scores
from .storage import load_model, save_model

__all__ = [
    "COST_MODELS",
    "BoundCostModel",
    "CostModel",
    "OtherTask",
    "TaskData",
    "TrainingData",
    "bind",
    "compute_scores",
    "fit_model",
    "load_model",
    "make_cost_model",
    "predict_scores",
    "save_model",
]
