"""Regressors from scikit-learn, each with the options that matter for a few hundred trials.

Sources: Pedregosa et al., "Scikit-learn: Machine Learning in Python" (JMLR 2011), and the papers cited in each class.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge as RidgeRegression
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler
from threadpoolctl import ThreadpoolController

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel
from searchlab.options import Between, Count, NonNegative

ColumnFraction = Annotated[float, Between(1e-6, 1)]


@dataclass(frozen=True)
class Preparation:
    """Applies a fitted pipeline of SimpleImputer and StandardScaler with identical results, but faster.

    The pipeline validates its input at each step. For the small batches of a search, this takes longer than the model.

    Attributes:
        fill: The value that replaces NaN in each column.
        indicator_columns: The columns with an additional indicator column for NaN.
    """

    fill: Floats
    indicator_columns: Ints
    mean: Floats
    scale: Floats

    @classmethod
    def from_fitted(cls, imputer: SimpleImputer, scaler: StandardScaler) -> Self:
        return cls(imputer.statistics_, imputer.indicator_.features_, scaler.mean_, scaler.scale_)

    def __call__(self, features: Floats) -> Floats:
        is_missing = np.isnan(features)
        imputed_features = np.where(is_missing, self.fill, features)
        columns = np.concatenate([imputed_features, is_missing[:, self.indicator_columns]], axis=1)
        return (columns - self.mean) / self.scale


class ScikitLearn(CostModel):
    """Least-squares regression of the scores with a regressor from scikit-learn.

    Missing values are replaced with the median of their column, and an additional column marks them, because it may
    matter which knobs a config lacks. Columns are scaled to mean 0 and standard deviation 1, which does not change
    trees. BLAS runs on one thread, so sums are evaluated in the same order on every machine.
    """

    def __init__(self, *, seed: int) -> None:
        super().__init__(seed=seed)
        self._mean_score = 0.0
        self._preparation: Preparation | None = None
        self._fitted_regressor: Any = None
        self._thread_controller = ThreadpoolController()

    @abstractmethod
    def make_regressor(self, rows: Floats) -> Any:
        """Return an untrained regressor for these features, which are scaled and contain no NaN."""

    def select_training_rows(self, scores: Floats) -> Ints:
        """Return the indices (n,) of the rows to train on; by default, all of them."""
        return np.arange(len(scores))

    def predict_scaled(self, rows: Floats) -> Any:
        """Return the predictions for these features, which are scaled and contain no NaN."""
        return self._fitted_regressor.predict(rows)

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self._mean_score = float(np.mean(scores))
        self._preparation = self._fitted_regressor = None
        if not features.shape[1]:
            return
        training_rows = self.select_training_rows(scores)
        imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        scaler = StandardScaler()
        with self._thread_controller.limit(limits=1), warnings.catch_warnings():
            # The maximum number of steps is an option, so a fit that reaches it needs no warning.
            warnings.simplefilter("ignore", ConvergenceWarning)
            rows = scaler.fit_transform(imputer.fit_transform(features[training_rows]))
            self._fitted_regressor = self.make_regressor(rows).fit(rows, scores[training_rows])
        self._preparation = Preparation.from_fitted(imputer, scaler)

    def predict(self, features: Floats) -> Floats:
        if self._preparation is None or not len(features):
            return np.full(len(features), self._mean_score)
        with self._thread_controller.limit(limits=1):
            return np.asarray(self.predict_scaled(self._preparation(features)), dtype=np.float64)


class Forest(ScikitLearn):
    """The mean of many regression trees.

    Args:
        trees: The number of trees.
        min_samples_leaf: The minimum number of trials in a leaf.
        max_features: The fraction of the columns that is considered at each split.

    Attributes:
        ensemble: scikit-learn's class of such trees.
    """

    uncertainty = "members"
    ensemble: ClassVar[type[Any]]

    def __init__(self, *, seed: int, trees: int, min_samples_leaf: int, max_features: float) -> None:
        super().__init__(seed=seed)
        self.trees = trees
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features

    def make_regressor(self, rows: Floats) -> Any:
        return self.ensemble(
            n_estimators=self.trees,
            min_samples_leaf=self.min_samples_leaf,
            max_features=self.max_features,
            random_state=self.seed,
            n_jobs=1,
        )

    def predict_scaled(self, rows: Floats) -> Any:
        sums = np.zeros(len(rows))
        for predicted in self._predict_by_tree(rows):
            sums += predicted
        return sums / len(self._fitted_regressor.estimators_)

    def members(self, features: Floats) -> Floats:
        if self._preparation is None or not len(features):
            return np.full((1, len(features)), self._mean_score)
        return np.array(list(self._predict_by_tree(self._preparation(features))))

    def _predict_by_tree(self, rows: Floats) -> Iterator[Floats]:
        # The result is identical to that of scikit-learn's predict, which validates the rows once per tree. For the
        # small batches of a search, this validation takes ten times as long as the trees.
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        for tree in self._fitted_regressor.estimators_:
            yield tree.tree_.predict(rows)[:, 0]


class RandomForest(Forest):
    """A random forest: the mean of trees that are trained on bootstrap samples and split at the best thresholds.

    Source: Breiman, "Random Forests" (2001).

    Args:
        trees: The number of trees.
        min_samples_leaf: The minimum number of trials in a leaf.
        max_features: The fraction of the columns that is considered at each split.
    """

    ensemble = RandomForestRegressor

    def __init__(
        self, *, seed: int, trees: Count = 100, min_samples_leaf: Count = 1, max_features: ColumnFraction = 1 / 3
    ) -> None:
        super().__init__(seed=seed, trees=trees, min_samples_leaf=min_samples_leaf, max_features=max_features)


class ExtraTrees(Forest):
    """Extremely randomised trees: the mean of trees that are split at random thresholds.

    Source: Geurts et al., "Extremely randomized trees" (2006).

    Args:
        trees: The number of trees.
        min_samples_leaf: The minimum number of trials in a leaf.
        max_features: The fraction of the columns that is considered at each split.
    """

    ensemble = ExtraTreesRegressor

    def __init__(
        self, *, seed: int, trees: Count = 100, min_samples_leaf: Count = 1, max_features: ColumnFraction = 1.0
    ) -> None:
        super().__init__(seed=seed, trees=trees, min_samples_leaf=min_samples_leaf, max_features=max_features)


class GaussianProcess(ScikitLearn):
    """A Gaussian process with a Matern kernel (nu = 5/2) and noise; hyperparameters maximise the marginal likelihood.

    Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), Algorithm 2.1 and chapter 5.

    Args:
        max_rows: The maximum number of trials to train on, because the training time grows with their cube. If there
            are more, the fastest ones fill half, and the most recent of the others fill the rest.
    """

    def __init__(self, *, seed: int, max_rows: Annotated[int, Between(2)] = 300) -> None:
        super().__init__(seed=seed)
        self.max_rows = max_rows

    def select_training_rows(self, scores: Floats) -> Ints:
        fastest = np.argsort(-scores, kind="stable")[: self.max_rows // 2]
        slower = np.setdiff1d(np.arange(len(scores)), fastest)
        return np.sort(np.concatenate([fastest, slower[-(self.max_rows - len(fastest)) :]]))

    def make_regressor(self, rows: Floats) -> Any:
        # The typical distance between two rows is the square root of twice the number of scaled columns. The fit starts
        # from this length scale and from moderate noise. A fit that starts elsewhere often attributes all variation to
        # noise, so that all predictions are equal.
        diameter = math.sqrt(2 * max(1, int(np.count_nonzero(rows.std(axis=0)))))
        matern = Matern(length_scale=diameter, length_scale_bounds=(diameter / 20, 20 * diameter), nu=2.5)
        kernel = ConstantKernel(1.0) * matern + WhiteKernel(0.1, (1e-4, 1.0))
        return GaussianProcessRegressor(kernel=kernel, normalize_y=True, random_state=self.seed)


class Ridge(ScikitLearn):
    """Ridge regression: a linear model.

    Source: Hoerl and Kennard, "Ridge Regression" (1970).

    Args:
        alpha: The penalty on the square of each weight.
    """

    def __init__(self, *, seed: int, alpha: Annotated[float, Between(1e-9)] = 1.0) -> None:
        super().__init__(seed=seed)
        self.alpha = alpha

    def make_regressor(self, rows: Floats) -> Any:
        return RidgeRegression(alpha=self.alpha)


class Mlp(ScikitLearn):
    """A small neural network with ReLU units, trained by L-BFGS, which suits small data sets.

    Source: He et al., "Delving Deep into Rectifiers" (ICCV 2015); as a cost model, Zheng et al., "TenSet" (NeurIPS
    2021).

    Args:
        width: The number of units in each hidden layer.
        layers: The number of hidden layers.
        alpha: The penalty on the square of each weight.
        steps: The maximum number of L-BFGS steps.
    """

    def __init__(
        self,
        *,
        seed: int,
        width: Count = 64,
        layers: Annotated[int, Between(1, 16)] = 2,
        alpha: NonNegative = 1e-2,
        steps: Count = 200,
    ) -> None:
        super().__init__(seed=seed)
        self.hidden = (width,) * layers
        self.alpha = alpha
        self.steps = steps

    def make_regressor(self, rows: Floats) -> Any:
        return MLPRegressor(
            hidden_layer_sizes=self.hidden,
            solver="lbfgs",
            alpha=self.alpha,
            max_iter=self.steps,
            random_state=self.seed,
        )
