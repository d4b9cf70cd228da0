"""Search in which a language model proposes the configs.

Sources: ``LLMGuidedSearch`` and ``LLMSeededSearch`` in ``helion/autotuner`` of pytorch/helion (pull requests 2003 and
2004, April 2026); Tang et al., "REASONING COMPILER: LLM-Guided Optimizations for Efficient Model Serving" (arXiv
2506.01374, 2025).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from searchlab.errors import InvalidConfig, SearchlabError, warn
from searchlab.options import Count, NonNegative
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value

from .chain import Chain
from .chat import Chat, Conversation
from .model_guided import rank_successes

SYSTEM_PROMPT = """You tune tensor programs: you choose the parameters with which a compiler schedules a computation, \
so that the program runs as fast as possible. You are told what was measured and propose what to measure next. You \
reply with JSON only."""

MAX_LISTED_CHOICES = 128
"""The maximum number of a knob's choices that a prompt lists."""

PROBE_COUNT = 32
"""The number of random configs whose knobs are described, since a knob's choices may depend on earlier knobs."""


class Llm(NeverTwice):
    """A language model at an OpenAI-compatible endpoint proposes every batch.

    The prompt contains the workload, the target, the knobs with their choices, the fastest and the latest trials
    (failures with their class), and the number of configs to propose. The answer must contain a JSON object by the
    schema in the prompt. It is data: nothing in it is executed. Random configs replace invalid proposals: those with
    unknown or missing knobs, values that are not choices, or a violated constraint, and duplicates. Logs mark random
    configs as fill-ins, and reports show their share.

    Set the environment variable ``SEARCHLAB_LLM_URL`` to the endpoint, ``SEARCHLAB_LLM_KEY`` to its key, and
    ``SEARCHLAB_LLM_CASSETTE`` to the directory in which all exchanges are recorded (by default, ``llm-cassette``). A
    request that has been recorded is answered without the endpoint, so a run can be resumed and verified offline.

    Args:
        model: The model's name at the endpoint.
        temperature: The temperature at which the model samples; None for the endpoint's default.
        shown: The number of fastest trials, and of latest trials, in the prompt.
        attempts: The number of times that the model is asked if its answer contains no JSON by the schema. After that,
            the batch is random.
        structured: Whether to request that the endpoint enforces the schema (``response_format``). Some endpoints
            reject this.

    Attributes:
        invalid_counts: The number of invalid proposals so far, by reason.
    """

    origin = Origin(
        "Helion's LLMGuidedSearch",
        "pull request 2003 (April 2026)",
        "helion/autotuner/llm_search.py in pytorch/helion",
        "relative",
        (
            "the prompt describes a workload, a target and knobs; Helion's contains the kernel's source",
            "the model proposes every batch of the run; Helion asks for at most four rounds",
            "the first batch is the model's; Helion measures its default config and random ones beside it",
            "invalid proposals are replaced by random configs; Helion drops them",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        model: str = "",
        temperature: NonNegative | None = None,
        shown: Count = 8,
        attempts: Count = 3,
        structured: bool = True,
    ) -> None:
        super().__init__(space, seed=seed)
        if not model:
            raise SearchlabError("option 'model' is empty; it must be the name of a model at the endpoint")
        self.shown = shown
        self.attempts = attempts
        self.invalid_counts: Counter[str] = Counter()
        self._request_settings: dict[str, Any] = {"model": model}
        if temperature is not None:
            self._request_settings["temperature"] = temperature
        options = self._request_settings | {"shown": shown, "attempts": attempts, "structured": structured}
        self._chat = Chat(Conversation(str(space.workload), str(space.target), space.fingerprint, seed, options))
        self._choices_by_knob = collect_choices(space)
        self._schema = make_schema(self._choices_by_knob)
        if structured:
            json_schema = {"name": "configs", "schema": self._schema}
            self._request_settings["response_format"] = {"type": "json_schema", "json_schema": json_schema}

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        proposals = self._ask_model(n)
        problem_counts: Counter[str] = Counter()
        configs: dict[Config, None] = {}
        for proposal in proposals[: 4 * n]:
            config = self._read_proposal(proposal)
            if isinstance(config, Config) and config not in self.seen and config not in configs:
                configs[config] = None
            else:
                problem_counts["duplicate" if isinstance(config, Config) else config] += 1
        self.invalid_counts += problem_counts
        if not configs:
            counts = ", ".join(f"{problem} {count}" for problem, count in problem_counts.most_common()) or "no JSON"
            warn(f"the language model proposed no valid config, so a batch of {n} is random ({counts})")
        yield from configs

    def _ask_model(self, n: int) -> Sequence[Any]:
        """Return the model's proposals, which may be anything, or none if no answer follows the schema."""
        messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": self.write_prompt(n)}]
        for attempt in range(self.attempts):
            # With another seed, the model may answer something else, and runs with different seeds are independent.
            model_seed = int(private_rng(self.seed, "llm", attempt).integers(1 << 31))
            request = {**self._request_settings, "messages": messages, "seed": model_seed}
            if (proposals := parse_answer(self._chat.answer(request))) is not None:
                return proposals
            self.invalid_counts["answer without JSON"] += 1
        return []

    def write_prompt(self, n: int) -> str:
        """Return the request for ``n`` configs, which depends only on the trials and on what is being measured."""
        measured_configs = {trial.config for trial in self.trials}
        pending = [config for config in self.seen if config not in measured_configs]
        ranked = rank_successes(self.trials)
        sections = [
            f"Computation: {self.space.workload}\nTarget: {self.space.target}",
            f"{len(self.trials)} configs have been measured, of which {len(self.trials) - len(ranked)} failed.",
            _describe_trials("The fastest", ranked[: self.shown]),
            _describe_trials("The latest", self.trials[-self.shown :]),
            "Being measured now:\n" + "\n".join(map(_format_config, pending)) if pending else "",
            f"Propose {n} other configs, the most promising first. Each parameter must have one of its values; some "
            f"combinations of values may be invalid. Reply with one JSON object by this schema:\n"
            f"{json.dumps(self._schema)}",
        ]
        return "\n\n".join(section for section in sections if section)

    def _read_proposal(self, proposal: Any) -> Config | str:
        """Return a proposal as a config, without knobs that the config lacks, or the reason why it is invalid."""
        if not isinstance(proposal, dict):
            return "not an object"
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in proposal.items()}

        def choose(knob: Knob) -> Value:
            if knob.name not in values:
                raise InvalidConfig("missing knob")
            if (value := values[knob.name]) in knob.choices:
                return knob.choices[knob.choices.index(value)]  # 64 for 64.0
            is_choice = any(value in choices for choices in self._choices_by_knob.get(knob.name, []))
            raise InvalidConfig("violated constraint" if is_choice else "not a choice")

        try:
            config = self.space.decide(choose)
        except InvalidConfig as error:
            return str(error)
        return "unknown knob" if values.keys() - config.keys() - self._choices_by_knob.keys() else config


class LlmSeeded(Chain):
    """A language model proposes the first configs, from which another policy continues.

    Args:
        then: The policy that continues: a registered name, ``"module:Class"``, or ``{"name": ..., "options": {...}}``.
            It receives the first trials as a warm start.
        trials: The number of trials that the language model proposes.
        model: See the policy ``llm``, as for all other options.
        temperature: See ``llm``.
        attempts: See ``llm``.
        structured: See ``llm``.
    """

    origin = Origin(
        "Helion's LLMSeededSearch",
        "pull requests 2004 and 2091 (April 2026)",
        "helion/autotuner/llm_seeded_lfbo.py in pytorch/helion",
        "relative",
        (
            "the deviations of llm",
            "by default, boosted trees continue; in Helion, LFBOTreeSearch does",
            "the second policy learns from all trials of the model; Helion starts it from the best one",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        then: str | Mapping[str, Any] = "xgb",
        trials: Count = 16,
        model: str = "",
        temperature: NonNegative | None = None,
        attempts: Count = 3,
        structured: bool = True,
    ) -> None:
        options = {"model": model, "temperature": temperature, "attempts": attempts, "structured": structured}
        super().__init__(space, seed=seed, arms=[{"name": "llm", "options": options}, then], trials=trials)


def collect_choices(space: Space) -> dict[str, list[Sequence[Value]]]:
    """Return, for each knob of a few random configs, the different choices that it has in these configs."""
    choices: dict[str, list[Sequence[Value]]] = {}
    for config in space.probe(PROBE_COUNT):
        for knob in space.knobs(config):
            if knob.choices not in choices.setdefault(knob.name, []):
                choices[knob.name].append(knob.choices)
    return choices


def make_schema(choices: Mapping[str, Sequence[Sequence[Value]]]) -> dict[str, Any]:
    """Return the JSON schema of an answer. If a knob has too many choices to list, it contains some of them."""
    properties: dict[str, Any] = {}
    for name, choice_lists in choices.items():
        if sum(map(len, choice_lists)) <= MAX_LISTED_CHOICES:
            properties[name] = {"enum": list(dict.fromkeys(value for values in choice_lists for value in values))}
        else:
            longest = max(choice_lists, key=len)
            stride = -(-len(longest) // MAX_LISTED_CHOICES)
            description = f"one of {len(longest):,} values, of which these are some"
            properties[name] = {"description": description, "examples": list(longest[::stride])}
    config_schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {
        "type": "object",
        "properties": {"configs": {"type": "array", "items": config_schema}},
        "required": ["configs"],
    }


def parse_answer(answer: str) -> list[Any] | None:
    """Return the proposals in an answer, or None if it contains no JSON object with a list called ``configs``.

    Prose and code fences around the object are ignored. Of several objects, the last one counts, because models reason
    before they answer.
    """
    start_positions = [match.start() for match in re.finditer(r'\{[^{}]*"configs"', answer)]
    for start in reversed(start_positions[-16:]):
        with suppress(ValueError, RecursionError):
            configs = json.JSONDecoder().raw_decode(answer, start)[0].get("configs")
            if isinstance(configs, list):
                return configs
    return None


def _describe_trials(title: str, trials: Sequence[Trial]) -> str:
    trial_lines = [
        f"{trial.measurement.failure or f'{trial.cost * 1e6:.4g} us'}: {_format_config(trial.config)}"
        for trial in trials
    ]
    return f"{title}:\n" + "\n".join(trial_lines) if trial_lines else ""


def _format_config(config: Config) -> str:
    return json.dumps(config.to_json(), sort_keys=True)
