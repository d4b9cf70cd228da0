"""What the directory of a surrogate table says of itself, and whether it may be used.

The gate is measured where the truth is known, on complete tables. There a surrogate is trained on a part of the table;
it must predict the rest, and policies must do on it as they do on the table.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ...errors import SearchlabError
from ...plugins import Plugin
from ...records import Failure
from ...schema import UNREADABLE, explained

NAME = "surrogate.json"
"""The file of a surrogate's directory that says what the others are."""

LEAST_R2, LEAST_TAU, LEAST_SPEARMAN, MOST_AREA = 0.9, 0.8, 0.9, 0.02
"""The gate: R2 on log seconds and Kendall's tau on trials that the model was not trained on; Spearman's correlation of
the areas of policies on the surrogate and on the table, and the largest difference of the two areas of a policy."""


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a surrogate is trained: gradient boosted trees over ``features``, ``members`` times, from different seeds.

    rounds, num_leaves, learning_rate: as in LightGBM. seed: decides everything that is drawn.
    """

    features: Literal["knob", "program"] = "knob"
    members: int = 5
    rounds: int = 200
    num_leaves: int = 31
    learning_rate: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("members", 1), ("rounds", 1), ("num_leaves", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 < self.learning_rate <= 1:
            raise ValueError(f"learning_rate must be more than 0 and at most 1, not {self.learning_rate}")


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How well a surrogate predicts trials that it was not trained on.

    r2, tau: R2 and Kendall's tau of log seconds, over the trials that succeeded and are predicted to; None where they
    are not defined. outcomes: share of the trials whose success or failure is predicted. spread: mean standard
    deviation of the log seconds that the members predict.
    """

    trained_on: int
    tested_on: int
    r2: float | None
    tau: float | None
    outcomes: float
    spread: float

    def problems(self, where: str) -> list[str]:
        """What of the gate it fails, a phrase each."""
        wanted = [("R2", self.r2, LEAST_R2), ("Kendall's tau", self.tau, LEAST_TAU)]
        return [
            f"{name} is {'not defined' if value is None else f'{value:.3f}'} {where}, not at least {least:g}"
            for name, value, least in wanted
            if value is None or value < least
        ]


class PolicyFit(msgspec.Struct, frozen=True, kw_only=True):
    """Mean area under the curve of one policy on the table, and on the surrogate.

    Each area is relative to the optimum of the table, or of the surrogate. left_out: the area on a surrogate that was
    not trained on the trajectory of this policy; None where no surrogate was. error: the standard error of the
    difference of the first two.
    """

    policy: str
    table: float
    surrogate: float
    left_out: float | None
    error: float


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate, measured on one complete table.

    table, digest: the name and the SHA-256 of its file. configs: how many it holds. fit: on the part of the table that
    the surrogate was not trained on. seeds, trials: of the runs of each policy. spearman, area_error: how the areas of
    the policies agree; with ``_left_out``, with the trajectory of each policy left out when its own area is taken.
    """

    table: str
    digest: str
    workload: str
    space: Plugin
    configs: int
    settings: ModelSettings
    fit: Fit
    seeds: int
    trials: int
    policies: list[PolicyFit]
    spearman: float
    area_error: float
    spearman_left_out: float
    area_error_left_out: float

    @property
    def problems(self) -> list[str]:
        """What of the gate it fails, a phrase each; none where it passed."""
        problems = self.fit.problems(f"on the rest of {self.table}")
        for left, spearman, area in (
            ("", self.spearman, self.area_error),
            (", trajectories left out", self.spearman_left_out, self.area_error_left_out),
        ):
            if not spearman >= LEAST_SPEARMAN:
                problems.append(f"the rank correlation of policies is {spearman:.2f} on {self.table}{left}")
            if not area <= MOST_AREA:
                problems.append(f"the area of a policy is {area:.3f} off on {self.table}{left}")
        return problems


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``surrogate.json``.

    trials: the number of configs that it was trained on. measure: the protocol of these trials. columns: of the
    features, if they are of knobs. width: how many columns a row has. failures: the kinds of failure that it predicts,
    with the build and run seconds that one is charged. repeats: how many repeats a measurement has where noise is
    drawn. files: the SHA-256 of each other file of the directory: the training logs in ``data``, and the trees of each
    model in ``models``.
    held_out: on trials of its own data that a first surrogate was not trained on. gates: on complete tables of spaces
    of the same name, with the same settings.
    """

    searchlab_surrogate: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    workload: str
    space: Plugin
    fingerprint: str
    space_size: int | None
    target: dict[str, Any]
    measure: dict[str, Any]
    workers: Annotated[int, msgspec.Meta(ge=1)]
    settings: ModelSettings
    trials: int
    columns: list[tuple[str, int | str]]
    width: Annotated[int, msgspec.Meta(ge=1)]
    failures: dict[Failure, tuple[float, float]]
    repeats: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    versions: dict[str, str]
    files: dict[str, str]
    held_out: Fit
    gates: list[Gate]

    @property
    def problems(self) -> list[str]:
        """Why it fails its gate, a phrase each; none where it passed."""
        problems = self.held_out.problems("on its own held-out trials")
        if not self.gates:
            problems.append(f"no gate was measured on a complete table of {self.space.name}")
        return problems + [problem for gate in self.gates for problem in gate.problems]

    @property
    def digest(self) -> str:
        """A hash of all that it says, and so of all its files."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the surrogate in ``directory``. Raises SearchlabError."""
    path = directory / NAME
    manifest: Manifest = read_json(path, Manifest)
    for name in manifest.files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise SearchlabError(f"{path} names a file outside of its directory, {name!r}")
    return manifest


def read_json(path: Path, kind: Any) -> Any:
    """The JSON file ``path`` as a ``kind``. Raises SearchlabError, which names the wrong place."""
    try:
        return explained(msgspec.json.decode(path.read_bytes()), kind, str(path))
    except OSError as error:
        raise SearchlabError(f"cannot read {path}: {error.strerror}") from None
    except UNREADABLE as error:
        raise SearchlabError(f"{path} is no JSON: {error}") from None


def read_checked(directory: Path, manifest: Manifest, name: str) -> bytes:
    """The bytes of one of the files of ``manifest``. Raises SearchlabError if they are not those that it names."""
    path = directory / name
    if name not in manifest.files:
        raise SearchlabError(f"{directory / NAME} names no file {name}; train the surrogate again")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SearchlabError(f"cannot read {path}: {error.strerror}") from None
    if digest_of(data) != manifest.files[name]:
        raise SearchlabError(f"{path} is not the file that {NAME} names: its SHA-256 differs; fetch it again")
    return data


def digest_of(data: bytes) -> str:
    """The SHA-256 of ``data``, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
