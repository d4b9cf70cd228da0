"""The loop: *ask, measure, log, tell*.

A log holds the trials of a run in order, so resuming is running again: a new policy asks for the same configs, and is
told the logged trials. The configs that follow are measured.
"""

from __future__ import annotations

from ..costmodel.features import extracted_by
from ..log.format import Ended, Log
from ..log.writer import LogWriter
from ..measure.contract import Measurer
from ..records import Trial
from .draws import random_draws
from .finalists import finish
from .plan import OnTrial, Run
from .recorder import Recorder
from .replay import Replay
from .searcher import Searcher


def search(
    run: Run, measurer: Measurer, on_trial: OnTrial = lambda trial, replayed: None, held: Log | None = None
) -> Log:
    """Search until the budget of ``run`` is spent, or its policy has nothing more to propose. Gives the complete log.

    held: the log, if it was read before. Raises SearchlabError if the log is of another run, or if the policy asks for
    another config than the log holds.
    """
    header = run.header(
        measurer.workers,
        measurer.optimum(run.space),
        random_draws(measurer.whole(run.space), run.trials),
    )
    with LogWriter(run.log, header, durable=not measurer.repeatable, held=held) as writer:
        measurer.begin(run.seed)
        if run.budget.complete(writer.log):
            done = writer.log.trials
            for trial in done:
                on_trial(trial, True)
        else:
            with extracted_by(measurer.extract):
                done = _loop(run, measurer, writer, on_trial)
        finish(run.space, measurer, writer, done)
        return writer.log


def _loop(run: Run, measurer: Measurer, writer: LogWriter, on_trial: OnTrial) -> list[Trial]:
    searcher = Searcher(run, measurer.extract_seconds)
    replay = Replay(writer, on_trial)
    recorder = Recorder(run, writer, measurer, searcher, on_trial)
    done: list[Trial] = []
    while len(done) < run.trials:
        if ended := run.budget.ends(writer.log, len(done)):
            if len(done) < len(writer.records):  # it had a larger budget before
                return done + replay.rest()
            recorder.end(ended)
            break
        configs = searcher.ask(run.batch)
        if not configs:
            replay.check_end()
            recorder.end(Ended(trials=len(done)))
            break
        configs = configs[: run.trials - len(done)]  # a later run with more trials measures the rest
        batch = replay.take(configs)
        batch += recorder.measure(configs[len(batch) :], batch, done)
        done += batch
        searcher.tell(batch)
    return done
