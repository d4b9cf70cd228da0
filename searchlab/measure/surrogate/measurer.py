"""A surrogate table that stands in for the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from ...costmodel.features import Features, laid_out, make_features
from ...errors import SearchlabError
from ...log.header import StandIn
from ...records import Measurement, Statistic
from ...space import Config, Space
from ...target import Target
from ..contract import KnownPrograms, Measurer
from ..table import drawn_for, one_target
from .manifest import NAME, Manifest, read_manifest
from .model import TrialModel

DIGITS = 6
"""Predictions have so many significant digits: the last ones differ from machine to machine."""


class SurrogateSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="surrogate", omit_defaults=True
):
    """Answer from models of recorded trials: a directory of ``searchlab table surrogate``, or several of them.

    Paths are relative to the study file. With ``noise`` each repeat is drawn around the prediction, from the seed of
    the run. A surrogate that failed its gate is refused, unless ``accept`` is ``"failed gate"``; the report then says
    so.
    """

    path: str | list[str]
    noise: bool = False
    accept: Literal["passed gate", "failed gate"] = "passed gate"
    statistic: Statistic = "median"

    exclusive: ClassVar[Literal[False]] = False
    replays: ClassVar[Literal[True]] = True

    def paths(self, base: Path) -> list[Path]:
        return [base / path for path in ([self.path] if isinstance(self.path, str) else self.path)]

    def identity(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    def default_target(self, base: Path = Path()) -> dict[str, Any]:
        """The one target of all the surrogates. Raises SearchlabError where they have several."""
        return one_target({path: one.target for path, one in read_manifests(self.paths(base)).items()})

    def measurable(self, base: Path = Path()) -> set[tuple[str, str]]:
        """The workload, and the fingerprint of the space, of each surrogate."""
        return {(one.workload, one.fingerprint) for one in read_manifests(self.paths(base)).values()}

    def machine(self, target: Target, base: Path = Path()) -> str:
        return ""  # a surrogate does not say where its trials were measured

    def make(self, target: Target, known: KnownPrograms, base: Path = Path()) -> SurrogateMeasurer:
        return SurrogateMeasurer(self.paths(base), self.noise, self.accept == "failed gate", self.statistic)


def read_manifests(paths: Sequence[Path]) -> dict[Path, Manifest]:
    """The surrogates in the directories ``paths``, and in those below them.

    Raises SearchlabError where there is none in one of them, or one is unreadable.
    """
    manifests: dict[Path, Manifest] = {}
    for given in paths:
        found = sorted(file.parent for file in given.rglob(NAME))
        if not found:
            raise SearchlabError(f"there is no surrogate ({NAME}) in {given}; searchlab table surrogate trains one")
        manifests.update({path: read_manifest(path) for path in found})
    return manifests


class SurrogateMeasurer(Measurer):
    """Answers with predictions, the same for a config in every run; building is charged on the recorded workers.

    noise: as many repeats as were recorded are drawn around the prediction, from the seed of the run and the config.
    accept_failed: whether a surrogate that failed its gate may answer. Raises SearchlabError where one failed that may
    not, where two are of one space, and in :meth:`measure` where none is of the space.
    """

    repeatable = True

    def __init__(
        self, paths: Sequence[Path], noise: bool = False, accept_failed: bool = False, statistic: Statistic = "median"
    ) -> None:
        self.where = ", ".join(str(path) for path in paths)
        self.noise = noise
        self.statistic = statistic
        self._at: dict[tuple[str, str], tuple[Path, Manifest]] = {}
        self._models: dict[tuple[str, str], _Answers] = {}
        for path, manifest in read_manifests(paths).items():
            key = (manifest.workload, manifest.fingerprint)
            if key in self._at:
                raise SearchlabError(
                    f"{self._at[key][0]} and {path} are surrogates of the same space; name one of them"
                )
            if manifest.problems and not accept_failed:
                raise SearchlabError(
                    f"the surrogate {path} failed its gate: {'; '.join(manifest.problems)}. To use it all the same, "
                    f'set accept = "failed gate"; the report then says that it failed'
                )
            self._at[key] = path, manifest
        built_on = sorted({manifest.workers for _, manifest in self._at.values()})
        if len(built_on) > 1:
            raise SearchlabError(
                f"the surrogates in {self.where} are of trials that were built on {' and '.join(map(str, built_on))} "
                f"workers, so their times cannot be compared; choose surrogates of one machine"
            )
        self.workers = built_on[0]
        self.begin(seed=0)

    def begin(self, seed: int) -> None:
        self._seed = seed

    def stand_in(self, space: Space) -> StandIn:
        _, manifest = self._surrogate(space)
        return StandIn(manifest.digest, manifest.trials, tuple(manifest.problems))

    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        path, manifest = self._surrogate(space)
        key = (manifest.workload, manifest.fingerprint)
        if key not in self._models:
            self._models[key] = _Answers(path, manifest, space)
        return self._models[key].of(configs, self.statistic, self._seed if self.noise else None)

    def _surrogate(self, space: Space) -> tuple[Path, Manifest]:
        key = (str(space.workload), space.fingerprint)
        if key not in self._at:
            held = ", ".join(sorted({manifest.workload for _, manifest in self._at.values()}))
            raise SearchlabError(
                f"no surrogate in {self.where} is of this space for {space.workload} and this target; the surrogates "
                f"there are of {held}, each for its own space and target; leave out the target to take theirs"
            )
        return self._at[key]


class _Answers:
    """The predictions of one surrogate; each config is predicted once."""

    def __init__(self, path: Path, manifest: Manifest, space: Space) -> None:
        self._manifest = manifest
        self._features: Features = make_features(manifest.settings.features, space)
        self._features.settle(manifest.columns)
        self._model = TrialModel.load(path, manifest)
        self._known: dict[Config, tuple[Measurement, float]] = {}  # and the noise of the log seconds

    def of(self, configs: Sequence[Config], statistic: Statistic, seed: int | None) -> Iterator[Measurement]:
        """The measurement of each config. seed: that of the noise, or None for none."""
        new = [config for config in dict.fromkeys(configs) if config not in self._known]
        if new:
            self._known.update(zip(new, self._predicted(new), strict=True))
        for config in configs:
            measurement, noise = self._known[config]
            seconds = measurement.seconds
            if seed is not None and seconds:
                drawn = drawn_for(seed, config).standard_normal(self._manifest.repeats)
                seconds = tuple(rounded(seconds[0] * math.exp(noise * z)) for z in drawn)
            yield replace(measurement, seconds=seconds, statistic=statistic)

    def _predicted(self, configs: Sequence[Config]) -> Iterator[tuple[Measurement, float]]:
        rows = laid_out(self._features, self._features(configs), self._manifest.width)
        predicted = self._model.predict(rows)
        seconds = np.exp(predicted.log_seconds)
        for i, failure in enumerate(predicted.failures):
            if failure is not None:
                build, run = self._manifest.failures[failure]
                message = f"a surrogate predicts a failure, with probability {predicted.probability[i]:.2f}"
                yield Measurement((), failure, message, build, run), 0.0
            else:
                build, run = rounded(predicted.build[i]), rounded(predicted.run[i])
                yield (
                    Measurement((rounded(seconds[i]),), build_seconds=build, run_seconds=run),
                    float(predicted.noise[i]),
                )


def rounded(seconds: float) -> float:
    """``seconds`` with :data:`DIGITS` significant digits."""
    return float(f"{seconds:.{DIGITS}g}")
