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

LENGTHS, NOISE = (0.05, 50.0), (1e-6, 1.0)
"""The ranges of the length scales and of the noise variance, which is relative to the signal variance."""

STEPS = 30
"""The maximum number of L-BFGS steps. The hyperparameters need not be exact, and each step takes O(n^3)."""


class Encoding:
    """Converts configs to rows of numbers, so that Euclidean distances suit the type of each knob.

    Numbers are compared by their logarithms, or by value if a choice is negative; tiles by the logarithms of their
    factors; permutations by the positions of their elements (Spearman's distance); and words by equality (Hamming's
    distance). The distance between two choices is at most about 1. A knob that only one of the two configs has adds
    another 1 to the squared distance.

    Args:
        space: The space that contains the configs.
        by_factor: Whether each factor of a tile has a length scale of its own.

    Attributes:
        scales: The index of each column's length scale, of shape (columns,). The columns of a knob share one, unless
            they are the factors of a tile and ``by_factor`` is true.
    """

    def __init__(self, space: Space, *, by_factor: bool = False) -> None:
        knobs = space.knobs_of(space.probe())
        self._coders = {name: _Coder(knob) for name, knob in knobs.items()}
        scales: list[int] = []
        for name, coder in self._coders.items():
            first = scales[-1] + 1 if scales else 0
            is_split = by_factor and knobs[name].kind == "tile"
            scales += [first, *(first + i * is_split for i in range(coder.width - 1))]
        self.scales: Ints = np.array(scales, dtype=np.int64)

    def __call__(self, configs: Sequence[Config]) -> Floats:
        """Return the rows of ``configs``, of shape (n, columns)."""
        if not configs:
            return np.empty((0, len(self.scales)))
        return np.hstack([coder([c.get(name) for c in configs]) for name, coder in self._coders.items()])


def select(ranked: Sequence[Trial], memory: int) -> list[Trial]:
    """Return at most ``memory`` trials to model: the fastest fill half, and the most recent of the others the rest.

    Args:
        ranked: The trials, fastest first.
        memory: The maximum number of trials.
    """
    slower = sorted(ranked[memory // 2 :], key=lambda trial: trial.index)
    return [*ranked[: memory // 2], *slower[-(memory - memory // 2) :]]


class _Coder:
    """Converts a knob's choices to columns, the first of which indicates that a config has the knob.

    Attributes:
        width: The number of columns.
    """

    def __init__(self, knob: Knob) -> None:
        self._rows: dict[Value | None, int] = {}  # the row of the table for each value
        self._words: dict[Value, int] = {}
        self._permutation = knob.kind == "word" and _are_permutations(knob.choices)
        self._linear = knob.kind == "number" and any(n < 0 for n in knob.choices)  # type: ignore[operator]
        if knob.kind in ("word", "mixed") and not self._permutation:
            self._words = {word: i for i, word in enumerate(knob.choices)}
            self.width = 1 + len(self._words)
            return
        codes = np.array(list(zip_longest(*map(self._numbers, knob.choices), fillvalue=0.0))).T
        self.width = 1 + codes.shape[1]
        elements = codes.shape[1]
        span = (
            math.sqrt(elements * (elements**2 - 1) / 3) if self._permutation else np.linalg.norm(np.ptp(codes, axis=0))
        )
        self._span = float(span) or 1.0

    def __call__(self, values: Sequence[Value | None]) -> Floats:
        """Return the columns for ``values``, of shape (n, width). None stands for a knob that a config lacks."""
        for value in dict.fromkeys(values):
            if value not in self._rows:
                self._rows[value] = len(self._table)
                self._table = np.vstack([self._table, self._code(value)])
        columns: Floats = self._table[[self._rows[value] for value in values]]
        return columns

    @cached_property
    def _table(self) -> Floats:
        """The columns for all values so far."""
        return np.empty((0, self.width))

    def _code(self, value: Value | None) -> list[float]:
        numbers: list[float] = []
        if value is not None and self._words:
            numbers = [1.0, *(math.sqrt(0.5) if word == value else 0.0 for word in self._words)]
        elif value is not None:
            numbers = [1.0, *(number / self._span for number in self._numbers(value))]
        return [*numbers, *[0.0] * self.width][: self.width]

    def _numbers(self, value: Value) -> list[float]:
        if self._permutation:
            return [float(i) for i in np.argsort(value, kind="stable")]  # the position of each element
        parts: list[float] = list(value) if isinstance(value, tuple) else [value]  # type: ignore[list-item]
        if self._linear:
            return parts
        return [math.log2(part) if part > 0 else -1.0 for part in parts]


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
        scales: The length scale of each column; see :class:`Encoding`.
        prior: The prior of the hyperparameters.

    Attributes:
        loss: The negative logarithm of the posterior density of the hyperparameters, up to a constant. Smaller is
            better, among processes for the same configs and equally scaled values.
    """

    def __init__(self, rows: Floats, values: Floats, scales: Ints, prior: Prior = gamma_prior) -> None:
        self.rows = rows
        self.values = values
        self.scales = scales
        self._prior = prior
        self.mean = float(np.mean(values))
        count = int(scales.max(initial=-1)) + 1
        self._distances = np.stack(
            [squared_distances(rows[:, scales == k], rows[:, scales == k]) for k in range(count)], axis=-1
        )
        bounds = [tuple(map(math.log, LENGTHS))] * count + [tuple(map(math.log, NOISE))]
        starts = [
            np.array([math.log(length * math.sqrt(count))] * count + [math.log(1e-2)]) for length in (0.5, 1.0, 2.0)
        ]
        start = min(starts, key=lambda parameters: self._loss(parameters)[0])
        optimum = minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
        self.loss = float(optimum.fun)
        self.lengths = np.exp(optimum.x[:-1])
        self.noise = float(np.exp(optimum.x[-1]))
        del self._distances
        self._scaled = rows / self.lengths[scales]
        covariance = matern(squared_distances(self._scaled, self._scaled)) + self.noise * np.eye(len(rows))
        self._factor = cholesky(covariance, lower=True)
        self._weights = cho_solve((self._factor, True), values - self.mean)
        self.variance = max(float((values - self.mean) @ self._weights) / len(values), 1e-12)

    def _loss(self, parameters: Floats) -> tuple[float, Floats]:
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
        slopes = np.tensordot(outer * (5 / 3) * (1 + root) * decay, self._distances, axes=2) * lengths**-2
        loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
        unlikely, prior_slopes = self._prior(lengths, noise)
        return loss + unlikely, np.append(slopes, noise * np.trace(outer)) + prior_slopes

    def believe(self, row: Floats, value: float) -> None:
        """Add an observation in O(n^2), without changing the hyperparameters."""
        scaled = row / self.lengths[self.scales]
        column = solve_triangular(self._factor, matern(squared_distances(self._scaled, scaled[None]))[:, 0], lower=True)
        n = len(self.values)
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n], factor[n, :n] = self._factor, column
        factor[n, n] = math.sqrt(max(1 + self.noise - float(column @ column), 1e-12))
        self._factor = factor
        self._scaled = np.vstack([self._scaled, scaled])
        self.rows = np.vstack([self.rows, row])
        self.values = np.append(self.values, value)
        self._weights = cho_solve((factor, True), self.values - self.mean)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation, without noise, at ``rows``; both of shape (n,)."""
        posterior = self.posterior(rows)
        return posterior.mean, posterior.deviation

    def posterior(self, rows: Floats) -> Posterior:
        """Return the joint posterior at ``rows``, without noise."""
        scaled = rows / self.lengths[self.scales]
        covariance = matern(squared_distances(scaled, self._scaled))
        projection = solve_triangular(self._factor, covariance.T, lower=True, check_finite=False)
        return Posterior(scaled, self.mean + covariance @ self._weights, projection, self.variance, self.noise)

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation, with noise, at each training row if it is left out; both (n,).

        The hyperparameters are those for all rows (equations 5.10 to 5.12).
        """
        precision = np.diag(cho_solve((self._factor, True), np.eye(len(self.values))))
        return self.values - self._weights / precision, np.sqrt(self.variance / precision)


class Posterior:
    """The joint posterior of a Gaussian process at n rows, without noise.

    Args:
        scaled: The rows, divided by the length scales.
        mean: The posterior mean, of shape (n,).
        projection: A matrix of shape (m, n) whose Gram matrix is the prior covariance less the posterior covariance,
            both relative to the signal variance.
        variance: The signal variance.
        noise: The noise variance, relative to the signal variance.
    """

    def __init__(self, scaled: Floats, mean: Floats, projection: Floats, variance: float, noise: float) -> None:
        self.mean = mean
        self._scaled = scaled
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
        prior = matern(squared_distances(self._scaled, self._scaled[[index]]))[:, 0]
        covariance = prior - self._projection.T @ self._projection[:, index]
        row = covariance / math.sqrt(max(covariance[index], 0.0) + self._noise)
        self._projection = np.vstack([self._projection, row])

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw ``count`` functions, of shape (count, n)."""
        prior = matern(squared_distances(self._scaled, self._scaled))
        covariance = prior - self._projection.T @ self._projection + 1e-6 * np.eye(len(prior))
        values, vectors = np.linalg.eigh(covariance)  # rounding may make the matrix indefinite
        # The signs of eigenvectors, which differ between BLAS kernels, do not affect the symmetric root.
        root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        draws: Floats = self.mean + math.sqrt(self._variance) * rng.standard_normal((count, len(prior))) @ root
        return draws


def squared_distances(a: Floats, b: Floats) -> Floats:
    """Return the squared Euclidean distances between the rows of ``a`` and ``b``, of shape (len(a), len(b))."""
    differences = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b) - 2 * (a @ b.T)
    distances: Floats = np.maximum(differences, 0.0)
    return distances


def matern(distances: Floats) -> Floats:
    """Return the Matern kernel with nu = 5/2 of squared ``distances`` (equation 4.17)."""
    root = np.sqrt(5 * distances)
    kernel: Floats = (1 + root + root**2 / 3) * np.exp(-root)
    return kernel
