"""Proposals of a language model: the prompt, valid answers, recorded requests, and failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.read import read_log
from searchlab.run.tune import tune
from searchlab_policies import chat
from searchlab_policies.llm import Llm, LlmSeeded, parse_answer
from tests.support.language_model import LanguageModel, completion, propose, serve
from tests.support.logs import read_deterministic_part, write_table
from tests.support.policies import make_restricted

KEY = "sk-secret/key+of=tests"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LanguageModel]:
    with serve() as model:
        monkeypatch.setenv(chat.URL_VARIABLE, model.url)
        monkeypatch.setenv(chat.KEY_VARIABLE, KEY)
        monkeypatch.setenv(chat.CASSETTE_VARIABLE, str(tmp_path / "cassettes"))
        yield model


def fails(
    model: LanguageModel, status: int, body: str, headers: dict[str, str] | None = None, times: int = 100
) -> None:
    """Answer the first ``times`` requests with an error."""
    model.respond = lambda request: (
        (status, headers or {"Retry-After": "0"}, body)
        if len(model.requests) <= times
        else completion(propose(request))
    )


def answers(model: LanguageModel, *configs: Any, **values: Any) -> None:
    model.respond = lambda request: completion(json.dumps({"configs": configs}))


def run(log: Path, tables: Path, policy: Any = "llm", trials: int = 24) -> None:
    space = toys.Dependent()
    spec = policy if isinstance(policy, dict) else {"name": policy, "options": {"model": "stub"}}
    tune(
        space.workload,
        space=space,
        policy=spec,
        log=log,
        trials=trials,
        batch=8,
        measure={"kind": "table", "path": str(tables)},
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    folder.mkdir()
    write_table(folder / "toy.jsonl", toys.Dependent(), toys.simulate_flaky)
    return folder


def test_the_prompt_tells_the_task_and_the_trials(model: LanguageModel) -> None:
    policy = Llm(toys.Large(), seed=0, model="stub", temperature=0.5, shown=3)
    trials = toys.run_policy(policy, toys.simulate_flaky, 16)
    failed = [trial for trial in trials if trial.measurement.failure]
    assert failed
    first, _ = model.requests
    assert (first["path"], first["model"], first["temperature"]) == ("/v1/chat/completions", "stub", 0.5)
    assert model.keys == [f"Bearer {KEY}"] * 2
    text = policy.write_prompt(5)
    assert all(
        word in text for word in (str(policy.space.workload), str(policy.space.target), "Propose 5 other configs")
    )
    assert f"{len(trials)} configs have been measured, of which {len(failed)} failed" in text
    fastest = text.partition("The fastest:\n")[2].splitlines()[:3]
    costs = sorted(trial.cost for trial in trials)
    assert [line.partition(" us")[0] for line in fastest] == [f"{cost * 1e6:.4g}" for cost in costs[:3]]
    policy.tell(toys.simulate_trials(policy.ask(2), toys.simulate_invalid, 16))
    assert "\ninvalid: {" in policy.write_prompt(5)
    assert first["response_format"]["json_schema"]["schema"]["required"] == ["configs"]


def test_valid_proposals_are_measured_in_order(model: LanguageModel) -> None:
    configs = list(toys.Dependent().enumerate())[:3]
    answers(model, *(dict(reversed(config.to_json().items())) for config in configs))
    policy = Llm(toys.Dependent(), seed=0, model="stub")
    assert policy.ask(3) == configs and not policy.fill_ins and not policy.invalid_counts
    assert [list(config) for config in policy.seen] == [list(config) for config in configs]


def test_invalid_proposals_are_counted_and_replaced(model: LanguageModel) -> None:
    space = toys.Dependent()
    config = next(space.enumerate())
    values = config.to_json()
    name = next(iter(values))
    wrong = [{**values, name: value} for value in (-1, {"a": [1]}, [[1]], None, float("nan"))]
    answers(model, values, values, {**values, "os.system": "true"}, *wrong, {name: values[name]}, "rm -rf /")
    policy = Llm(space, seed=0, model="stub")
    batch = policy.ask(4)
    assert batch[0] == config and len(set(batch)) == 4
    assert list(policy.fill_ins) == batch[1:]  # type: ignore[call-overload]
    counts = {"duplicate": 1, "unknown knob": 1, "not a choice": 5, "missing knob": 1, "not an object": 1}
    assert policy.invalid_counts == counts


def test_a_violated_restriction_is_an_invalid_proposal(model: LanguageModel) -> None:
    space = make_restricted()
    config = next(config for config in space.probe() if config["x0"] == 64)
    answers(model, {**config.to_json(), "x1": 64}, {**config.to_json(), "x0": 64.0})
    policy = Llm(space, seed=0, model="stub")
    assert policy.ask(1) == [config] and policy.invalid_counts == {"violated constraint": 1}


@pytest.mark.parametrize(
    "answer",
    [
        '{"configs": [{"a": 1}]}',
        '```json\n{"configs": [{"a": 1}]}\n```',
        'First {I} think: {"configs": [{"b": 2}]}. No!\n{"why": "faster", "configs": [{"a": 1}]} Done {"configs"',
    ],
)
def test_json_is_found_in_prose_and_fences(answer: str) -> None:
    assert parse_answer(answer) == [{"a": 1}]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I cannot help",
        '{"configs": 3}',
        '{"configs": [{"a": ',
        '{"configs": ' + "[" * 100_000,
        '{"configs"' * 100_000,
    ],
)
def test_an_answer_without_configs_is_no_answer(answer: str) -> None:
    assert parse_answer(answer) is None


def test_after_useless_answers_the_batch_is_random(model: LanguageModel) -> None:
    model.respond = lambda request: completion("I would rather not.")
    policy = Llm(toys.Large(), seed=0, model="stub", attempts=2)
    with pytest.warns(SearchlabWarning, match=r"no valid config, so a batch of 4 is random \(no JSON\)"):
        assert len(set(policy.ask(4))) == 4
    assert (
        policy.invalid_counts == {"answer without JSON": 2}
        and len({request["seed"] for request in model.requests}) == 2
    )


@pytest.mark.parametrize("name", ["llm", "llm-seeded"])
def test_a_run_is_resumed_and_repeated_without_network(
    name: str, model: LanguageModel, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted, shortened, repeated = (tmp_path / f"{stem}.jsonl" for stem in ("whole", "cut", "again"))
    policy = {"name": name, "options": {"model": "stub"} | ({"then": "evolutionary"} if name == "llm-seeded" else {})}
    run(uninterrupted, table, policy)
    count = len(model.requests)
    assert count == (3 if name == "llm" else 2)
    monkeypatch.delenv(chat.URL_VARIABLE)
    shortened.write_bytes(uninterrupted.read_bytes()[:-700])
    for log in (shortened, repeated):
        run(log, table, policy)
        assert read_deterministic_part(log) == read_deterministic_part(uninterrupted)
    assert len(model.requests) == count


def test_a_request_that_was_not_recorded_is_one_sentence(
    model: LanguageModel, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a.jsonl", table, trials=8)
    monkeypatch.delenv(chat.URL_VARIABLE)
    with pytest.raises(SearchlabError, match="no answer to the next request.*set SEARCHLAB_LLM_URL") as error:
        run(tmp_path / "a.jsonl", table, trials=16)
    assert "\n" not in str(error.value)


def test_a_torn_last_line_is_asked_again(model: LanguageModel, tmp_path: Path) -> None:
    batch = Llm(toys.Large(), seed=0, model="stub").ask(8)
    (cassette,) = (tmp_path / "cassettes").iterdir()
    data = cassette.read_bytes()
    cassette.write_bytes(data[:-100])
    assert Llm(toys.Large(), seed=0, model="stub").ask(8) == batch
    assert cassette.read_bytes() == data and len(model.requests) == 2
    assert [json.loads(line).get("prompt_tokens") for line in data.splitlines()] == [None, 7]


def test_the_key_is_never_written_or_shown(model: LanguageModel, table: Path, tmp_path: Path) -> None:
    model.respond = lambda request: completion(f"Your key is {KEY}. {propose(request)}")
    run(tmp_path / "a.jsonl", table, trials=8)
    fails(model, 401, json.dumps({"error": {"message": f"Incorrect\x1b[31m API key provided:\n{KEY}"}}))
    with pytest.raises(SearchlabError, match=r"HTTP status 401: .*Incorrect.*provided.*\(key\)") as error:
        run(tmp_path / "a.jsonl", table, trials=16)
    assert KEY not in str(error.value) and "\n" not in str(error.value) and "\x1b" not in str(error.value)
    assert len(read_log(tmp_path / "a.jsonl").records) == 8, "nothing measured is lost"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3 and not any(KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_endpoint_is_asked_again(model: LanguageModel, status: int) -> None:
    fails(model, status, "slow down", times=2)
    assert len(Llm(toys.Large(), seed=0, model="stub").ask(4)) == 4
    assert len(model.requests) == 3


def test_the_seconds_to_wait_follow_from_the_answer() -> None:
    date = "Fri, 31 Dec 1999 23:59:59 GMT"
    assert [chat.compute_wait_seconds(text, 2) for text in ("7", date, "soon", "")] == [7.0, 0.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (404, {}, "no such model", "HTTP status 404: no such model"),
        (302, {"Location": "http://127.0.0.1:9/elsewhere"}, "", "HTTP status 302"),
        (200, {}, "<html>", "what is not a chat completion"),
        (200, {}, '{"error": {"message": "no"}}', "what is not a chat completion.*choices"),
        (200, {"Content-Length": "100000"}, '{"choices": [', "what is not a chat completion: .*truncated"),
    ],
)
def test_a_failing_endpoint_is_one_sentence(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch, status: int, headers: dict[str, str], body: str, message: str
) -> None:
    monkeypatch.setattr(chat, "MAX_ATTEMPTS", 1)
    fails(model, status, body, headers)
    with pytest.raises(
        SearchlabError, match=rf"language model at 127.0.0.1 .*{message}.*run the command again"
    ) as error:
        Llm(toys.Large(), seed=0, model="stub").ask(4)
    assert "\n" not in str(error.value)


def test_settings_that_cannot_work_are_refused(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SearchlabError, match="option 'model' is empty"):
        Llm(toys.Large(), seed=0)
    for name, value in (
        (chat.KEY_VARIABLE, f"{KEY}\nX: y"),
        (chat.TIMEOUT_VARIABLE, "-1"),
        (chat.URL_VARIABLE, "file:///etc/passwd"),
    ):
        monkeypatch.setenv(name, value)
        with pytest.raises(SearchlabError, match=name) as error:
            Llm(toys.Large(), seed=0, model="stub")
        assert KEY not in str(error.value)
        monkeypatch.delenv(name)
    with pytest.raises(SearchlabError, match="there is no language model to ask.*set SEARCHLAB_LLM_URL"):
        Llm(toys.Large(), seed=0, model="stub")


def test_another_policy_continues_from_the_models_trials(model: LanguageModel) -> None:
    policy = LlmSeeded(toys.Large(), seed=0, model="stub", then="evolutionary", trials=10)
    trials = toys.run_policy(policy, toys.simulate_smooth, 24)
    assert len(model.requests) == 2 and len(trials) == 24
    assert policy.arms[1].seen.keys() == {trial.config for trial in trials}  # type: ignore[attr-defined]
