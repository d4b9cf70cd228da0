"""A Gaussian process over configs, with a length scale for each knob.

Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), Algorithm 2.1 and equations (2.23),
(2.24) and (5.9). The kernel is the Matern kernel with nu = 5/2 (equation 4.17). A config is a row of numbers, and the
squared distance between two configs is the sum over knobs of the squared Euclidean distance between the knob's columns,
divided by the square of the knob's length scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import zip_longest

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from searchlab.arrays import Floats, Ints
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value

LENGTH_SCALE_BOUNDS, NOISE_BOUNDS = (0.05, 50.0), (1e-6, 1.0)
"""The ranges of the length scales and of the noise variance, which is relative to the signal variance."""

MAX_FIT_STEPS = 30
"""The maximum number of L-BFGS steps. The hyperparameters need not be exact, and each step takes O(n^3)."""


class Encoding:
    """Converts configs to rows of numbers, so that Euclidean distances suit the type of each knob.

    Numbers are compared by their logarithms, or by value if a choice is negative; tiles by the logarithms of their
    factors; permutations by the positions of their elements (Spearman's distance); and words by equality (Hamming's
    distance). The distance between two choices is at most about 1. A knob that only one of the two configs has adds
    another 1 to the squared distance.

    Args:
        space: The space that contains the configs.

    Attributes:
        length_scale_indices: The index of each column's length scale, of shape (columns,). The columns of a knob share
            one.
    """

    def __init__(self, space: Space) -> None:
        self._knob_encoders = {name: _KnobEncoder(knob) for name, knob in space.knobs_of(space.probe()).items()}
        widths = [encoder.width for encoder in self._knob_encoders.values()]
        self.length_scale_indices: Ints = np.repeat(np.arange(len(widths), dtype=np.int64), widths)

    def __call__(self, configs: Sequence[Config]) -> Floats:
        """Return the rows of ``configs``, of shape (n, columns)."""
        if not configs:
            return np.empty((0, len(self.length_scale_indices)))
        return np.hstack(
            [knob_encoder([c.get(name) for c in configs]) for name, knob_encoder in self._knob_encoders.items()]
        )


def select_trials_to_model(ranked: Sequence[Trial], memory: int) -> list[Trial]:
    """Return at most ``memory`` trials to model: the fastest fill half, and the most recent of the others the rest.

    Args:
        ranked: The trials, fastest first.
        memory: The maximum number of trials.
    """
    slower = sorted(ranked[memory // 2 :], key=lambda trial: trial.index)
    return [*ranked[: memory // 2], *slower[-(memory - memory // 2) :]]


class _KnobEncoder:
    """Converts a knob's choices to columns, the first of which indicates that a config has the knob.

    Attributes:
        width: The number of columns.
    """

    def __init__(self, knob: Knob) -> None:
        self._table_rows_by_value: dict[Value | None, int] = {}  # the row of the table for each value
        self._indices_by_word: dict[Value, int] = {}
        self._is_permutation = knob.kind == "word" and _are_permutations(knob.choices)
        self._is_linear = knob.kind == "number" and any(n < 0 for n in knob.choices)  # type: ignore[operator]
        if knob.kind in ("word", "mixed") and not self._is_permutation:
            self._indices_by_word = {word: i for i, word in enumerate(knob.choices)}
            self.width = 1 + len(self._indices_by_word)
            return
        codes = np.array(list(zip_longest(*map(self._to_numbers, knob.choices), fillvalue=0.0))).T
        self.width = 1 + codes.shape[1]
        element_count = codes.shape[1]
        span = (
            math.sqrt(element_count * (element_count**2 - 1) / 3)
            if self._is_permutation
            else np.linalg.norm(np.ptp(codes, axis=0))
        )
        self._span = float(span) or 1.0

    def __call__(self, values: Sequence[Value | None]) -> Floats:
        """Return the columns for ``values``, of shape (n, width). None stands for a knob that a config lacks."""
        for value in dict.fromkeys(values):
            if value not in self._table_rows_by_value:
                self._table_rows_by_value[value] = len(self._table)
                self._table = np.vstack([self._table, self._encode(value)])
        columns: Floats = self._table[[self._table_rows_by_value[value] for value in values]]
        return columns

    @cached_property
    def _table(self) -> Floats:
        """The columns for all values so far."""
        return np.empty((0, self.width))

    def _encode(self, value: Value | None) -> list[float]:
        numbers: list[float] = []
        if value is not None and self._indices_by_word:
            numbers = [1.0, *(math.sqrt(0.5) if word == value else 0.0 for word in self._indices_by_word)]
        elif value is not None:
            numbers = [1.0, *(number / self._span for number in self._to_numbers(value))]
        return [*numbers, *[0.0] * self.width][: self.width]

    def _to_numbers(self, value: Value) -> list[float]:
        if self._is_permutation:
            return [float(i) for i in np.argsort(value, kind="stable")]  # the position of each element
        factors: list[float] = list(value) if isinstance(value, tuple) else [value]  # type: ignore[list-item]
        if self._is_linear:
            return factors
        return [math.log2(factor) if factor > 0 else -1.0 for factor in factors]


def _are_permutations(choices: Sequence[Value]) -> bool:
    return all(isinstance(choice, tuple) and sorted(choice) == sorted(choices[0]) for choice in choices)  # type: ignore[arg-type]


Prior = Callable[[Floats, float], tuple[float, Floats]]
"""Maps the length scales, of shape (scales,), and the noise variance to the negative logarithm of their prior
density, up to a constant, and its gradient with respect to their logarithms, of shape (scales + 1,)."""


def gamma_prior(lengths: Floats, noise: float) -> tuple[float, Floats]:
    """Return the gamma prior of BaCO's scenarios for length scales (``lengthscale_prior``); noise has a flat prior."""
    shape, rate = 1.3, 0.1
    density = np.sum((shape - 1) * np.log(lengths) - rate * lengths)
    return -float(density), np.append(rate * lengths - (shape - 1), 0.0)


def lognormal_prior(lengths: Floats, noise: float) -> tuple[float, Floats]:
    """Return a prior that keeps a fit to a few trials close to a process that treats all knobs alike.

    The median of the length scales is a quarter of the square root of their number, and that of the noise
    variance is 0.01. The standard deviations of their logarithms are 1 and 2.
    """
    z = np.append(np.log(lengths * 4 / math.sqrt(len(lengths))), math.log(noise / 0.01) / 2)
    return float(z @ z) / 2, z / np.append(np.ones(len(lengths)), 2.0)


class GaussianProcess:
    """Gaussian process regression with maximum a posteriori hyperparameters.

    The prior mean is the mean of the training values. For given length scales and noise, the signal variance that
    maximises the likelihood has a closed form, so the optimiser varies only the former.

    Args:
        rows: The rows of the training configs, of shape (n, columns).
        values: Their values, of shape (n,).
        length_scale_indices: The index of each column's length scale; see :class:`Encoding`.
        prior: The prior of the hyperparameters.

    Attributes:
        loss: The negative logarithm of the posterior density of the hyperparameters, up to a constant. Smaller is
            better, among processes for the same configs and equally scaled values.
    """

    def __init__(self, rows: Floats, values: Floats, length_scale_indices: Ints, prior: Prior = gamma_prior) -> None:
        self.rows = rows
        self.values = values
        self.length_scale_indices = length_scale_indices
        self._prior = prior
        self.mean = float(np.mean(values))
        length_scale_count = int(length_scale_indices.max(initial=-1)) + 1
        self._distances = np.stack(
            [
                compute_squared_distances(rows[:, length_scale_indices == i], rows[:, length_scale_indices == i])
                for i in range(length_scale_count)
            ],
            axis=-1,
        )
        bounds = [tuple(map(math.log, LENGTH_SCALE_BOUNDS))] * length_scale_count + [tuple(map(math.log, NOISE_BOUNDS))]
        starts = [
            np.array([math.log(length * math.sqrt(length_scale_count))] * length_scale_count + [math.log(1e-2)])
            for length in (0.5, 1.0, 2.0)
        ]
        start = min(starts, key=lambda parameters: self._compute_loss(parameters)[0])
        optimum = minimize(
            self._compute_loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_FIT_STEPS}
        )
        self.loss = float(optimum.fun)
        self.lengths = np.exp(optimum.x[:-1])
        self.noise = float(np.exp(optimum.x[-1]))
        del self._distances
        self._scaled_rows = rows / self.lengths[length_scale_indices]
        kernel = compute_matern_kernel(compute_squared_distances(self._scaled_rows, self._scaled_rows))
        covariance = kernel + self.noise * np.eye(len(rows))
        self._cholesky_factor = cholesky(covariance, lower=True)
        self._weights = cho_solve((self._cholesky_factor, True), values - self.mean)
        self.variance = max(float((values - self.mean) @ self._weights) / len(values), 1e-12)

    def _compute_loss(self, parameters: Floats) -> tuple[float, Floats]:
        """Return the negative logarithm of the posterior density and its gradient (equations 5.8 and 5.9)."""
        lengths, noise = np.exp(parameters[:-1]), math.exp(parameters[-1])
        n = len(self.values)
        centred = self.values - self.mean
        root = np.sqrt(5 * (self._distances @ lengths**-2))
        decay = np.exp(-root)
        covariance = (1 + root + root**2 / 3) * decay
        covariance.flat[:: n + 1] += noise
        try:
            factor = cholesky(covariance, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros(len(parameters))
        weights = cho_solve((factor, True), centred, check_finite=False)
        variance = max(float(centred @ weights) / n, 1e-12)
        inverse = dpotri(factor, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        outer = (inverse - np.outer(weights, weights) / variance) / 2
        gradient = np.tensordot(outer * (5 / 3) * (1 + root) * decay, self._distances, axes=2) * lengths**-2
        loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
        prior_loss, prior_gradient = self._prior(lengths, noise)
        return loss + prior_loss, np.append(gradient, noise * np.trace(outer)) + prior_gradient

    def believe(self, row: Floats, value: float) -> None:
        """Add an observation in O(n^2), without changing the hyperparameters."""
        scaled_row = row / self.lengths[self.length_scale_indices]
        covariance = compute_matern_kernel(compute_squared_distances(self._scaled_rows, scaled_row[None]))[:, 0]
        column = solve_triangular(self._cholesky_factor, covariance, lower=True)
        n = len(self.values)
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n], factor[n, :n] = self._cholesky_factor, column
        factor[n, n] = math.sqrt(max(1 + self.noise - float(column @ column), 1e-12))
        self._cholesky_factor = factor
        self._scaled_rows = np.vstack([self._scaled_rows, scaled_row])
        self.rows = np.vstack([self.rows, row])
        self.values = np.append(self.values, value)
        self._weights = cho_solve((factor, True), self.values - self.mean)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation, without noise, at ``rows``; both of shape (n,)."""
        posterior = self.posterior(rows)
        return posterior.mean, posterior.deviation

    def posterior(self, rows: Floats) -> Posterior:
        """Return the joint posterior at ``rows``, without noise."""
        scaled_rows = rows / self.lengths[self.length_scale_indices]
        covariance = compute_matern_kernel(compute_squared_distances(scaled_rows, self._scaled_rows))
        projection = solve_triangular(self._cholesky_factor, covariance.T, lower=True, check_finite=False)
        return Posterior(scaled_rows, self.mean + covariance @ self._weights, projection, self.variance, self.noise)

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation, with noise, at each training row if it is left out; both (n,).

        The hyperparameters are those for all rows (equations 5.10 to 5.12).
        """
        precision = np.diag(cho_solve((self._cholesky_factor, True), np.eye(len(self.values))))
        return self.values - self._weights / precision, np.sqrt(self.variance / precision)


class Posterior:
    """The joint posterior of a Gaussian process at n rows, without noise.

    Args:
        scaled_rows: The rows, divided by the length scales.
        mean: The posterior mean, of shape (n,).
        projection: A matrix of shape (m, n) whose Gram matrix is the prior covariance less the posterior covariance,
            both relative to the signal variance.
        variance: The signal variance.
        noise: The noise variance, relative to the signal variance.
    """

    def __init__(self, scaled_rows: Floats, mean: Floats, projection: Floats, variance: float, noise: float) -> None:
        self.mean = mean
        self._scaled_rows = scaled_rows
        self._projection = projection
        self._variance = variance
        self._noise = noise

    @property
    def deviation(self) -> Floats:
        """The standard deviation, of shape (n,)."""
        unexplained = np.maximum(1 - np.einsum("ij,ij->j", self._projection, self._projection), 1e-12)
        deviation: Floats = np.sqrt(self._variance * unexplained)
        return deviation

    def believe(self, index: int) -> None:
        """Add an observation of the mean at row ``index``, which leaves the mean as it is, in O(nm)."""
        prior = compute_matern_kernel(compute_squared_distances(self._scaled_rows, self._scaled_rows[[index]]))[:, 0]
        covariance = prior - self._projection.T @ self._projection[:, index]
        row = covariance / math.sqrt(max(covariance[index], 0.0) + self._noise)
        self._projection = np.vstack([self._projection, row])

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw ``count`` functions, of shape (count, n)."""
        prior = compute_matern_kernel(compute_squared_distances(self._scaled_rows, self._scaled_rows))
        covariance = prior - self._projection.T @ self._projection + 1e-6 * np.eye(len(prior))
        eigenvalues, eigenvectors = np.linalg.eigh(covariance)  # rounding may make the matrix indefinite
        # The signs of eigenvectors, which differ between BLAS kernels, do not affect the symmetric root.
        root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0)) @ eigenvectors.T
        sampled_functions: Floats = (
            self.mean + math.sqrt(self._variance) * rng.standard_normal((count, len(prior))) @ root
        )
        return sampled_functions


def compute_squared_distances(a: Floats, b: Floats) -> Floats:
    """Return the squared Euclidean distances between the rows of ``a`` and ``b``, of shape (len(a), len(b))."""
    differences = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b) - 2 * (a @ b.T)
    distances: Floats = np.maximum(differences, 0.0)
    return distances


def compute_matern_kernel(distances: Floats) -> Floats:
    """Return the Matern kernel with nu = 5/2 of squared ``distances`` (equation 4.17)."""
    root = np.sqrt(5 * distances)
    kernel: Floats = (1 + root + root**2 / 3) * np.exp(-root)
    return kernel
