"""Pools of worker processes that are reused across batches, and batches of jobs for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from .channel import Deadline, wait_for_answers
from .messages import Failed, SetUp, Work
from .process import (
    START_TIMEOUT,
    AnswerMismatch,
    AnswerT,
    MeasuringWorker,
    WorkerDied,
    WorkerTimeout,
    failure_of,
)

Job = TypeVar("Job")


class WorkerPool:
    """A pool of processes that are started on demand and reused for later batches; see :class:`MeasuringWorker`."""

    def __init__(self, thread_count: int = 1, scratch_folder: str = "", memory_limit_mb: int = 0) -> None:
        self._arguments = thread_count, scratch_folder, memory_limit_mb
        self.processes: list[MeasuringWorker] = []

    def prepare_processes(self, set_up_message: SetUp, process_count: int) -> list[MeasuringWorker]:
        """Return processes that have been sent ``set_up_message``, whether or not they have finished setting up."""
        for process in list(self.processes):
            if not (process.is_alive and (process.is_set_up or process.set_up_message == set_up_message)):
                self.discard_process(process)
        for process in self.processes[:process_count]:
            if process.set_up_message != set_up_message:
                process.send_set_up(set_up_message)
        while len(self.processes) < process_count:
            self.start_process(set_up_message)
        return self.processes[:process_count]

    def set_up_processes(self, set_up_message: SetUp, process_count: int) -> list[MeasuringWorker]:
        """Return processes set up according to ``set_up_message``. Raises SearchlabError if one cannot be set up."""
        batch = JobBatch[None](self, set_up_message, process_count)
        batch.run()
        return batch.idle_processes

    def start_process(self, set_up_message: SetUp) -> MeasuringWorker:
        """Start a process and send it ``set_up_message``."""
        process = MeasuringWorker(*self._arguments)
        self.processes.append(process)
        process.send_set_up(set_up_message)
        return process

    def discard_process(self, process: MeasuringWorker) -> None:
        process.close()
        self.processes.remove(process)

    def close(self) -> None:
        for process in list(self.processes):
            self.discard_process(process)


class Assignment(NamedTuple, Generic[Job]):
    """The current task of a busy process.

    Attributes:
        job: The task, or None while the process is being set up.
    """

    job: Job | None
    deadline: Deadline


class JobBatch(Generic[Job]):
    """Assigns a batch's jobs to a pool's processes, and replaces those that die, time out or are spoiled.

    When used as a context manager, it kills all processes that are not idle if an exception ends the batch. A batch
    without jobs only sets up the processes.

    Attributes:
        queue: The jobs that have not yet been assigned to a process.
        idle_processes: The processes that can accept a job.
        assignments: The current task of each busy process.
    """

    def __init__(self, pool: WorkerPool, set_up_message: SetUp, process_count: int, jobs: Iterable[Job] = ()) -> None:
        processes = pool.prepare_processes(set_up_message, process_count)
        self.pool = pool
        self.set_up_message = set_up_message
        self.queue = deque(jobs)
        self.idle_processes = [process for process in processes if process.is_set_up]
        self.assignments: dict[MeasuringWorker, Assignment[Job]] = {}
        for process in processes:
            if not process.is_set_up:
                self.mark_busy(process, None, START_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type:  # a late answer must not be mistaken for the answer to a later message
            for process in [process for process in self.pool.processes if process not in self.idle_processes]:
                self.pool.discard_process(process)

    def assign_jobs(self) -> Sequence[Any]:
        """Assign waiting jobs to idle processes, and return any other objects with a ``fileno()`` to wait for."""
        return ()

    def receive_answer(self, process: MeasuringWorker, job: Job) -> None:
        """Receive an answer; if it completes ``job``, :meth:`mark_idle` the process. May raise WorkerDied."""
        raise NotImplementedError

    def on_worker_died(self, job: Job, death: WorkerDied, seconds: float) -> None:
        """Handle a ``job`` whose process died after working on it for ``seconds``."""
        raise NotImplementedError

    def run(self) -> None:
        """Run until all jobs are complete and no process is busy."""
        with self:
            while self.queue or self.assignments:
                self.step()

    def step(self) -> list[Any]:
        """Assign jobs, wait for an answer for a short time, and return the objects that can be read."""
        other_sources = self.assign_jobs()
        deadlines = [assignment.deadline for assignment in self.assignments.values()]
        sources = wait_for_answers([*(process.channel for process in self.assignments), *other_sources], deadlines)
        for process, assignment in list(self.assignments.items()):
            try:
                if process.channel in sources:
                    self._receive(process, assignment)
                elif assignment.deadline.is_over and not process.channel.poll():  # still no answer
                    raise WorkerTimeout(f"took longer than {assignment.deadline.seconds:g} s")
            except WorkerDied as death:
                if assignment.job is None:
                    process.fail_unless_set_up(death)
                self.replace_process(process)
                if assignment.job is not None:
                    self.on_worker_died(assignment.job, death, assignment.deadline.used_seconds)
        return sources

    def mark_busy(self, process: MeasuringWorker, job: Job | None, timeout: float) -> None:
        """Mark ``process`` as busy, and give it ``timeout`` seconds to send its next answer."""
        self.assignments[process] = Assignment(job, Deadline(timeout, process.is_stopped))

    def mark_idle(self, process: MeasuringWorker) -> None:
        """Make ``process`` idle, or replace it if a candidate has changed it."""
        if process.is_usable:
            del self.assignments[process]
            self.idle_processes.append(process)
        else:
            self.replace_process(process)

    def replace_process(self, process: MeasuringWorker) -> None:
        """Kill ``process``, and set up a new one in its place."""
        self.pool.discard_process(process)
        self.assignments.pop(process, None)
        self.mark_busy(self.pool.start_process(self.set_up_message), None, START_TIMEOUT)

    def _receive(self, process: MeasuringWorker, assignment: Assignment[Job]) -> None:
        if assignment.job is not None:
            self.receive_answer(process, assignment.job)
            return
        process.receive_set_up()
        if process.is_set_up:
            self.mark_idle(process)
        else:
            self.mark_busy(process, None, START_TIMEOUT)


class MessageBatch(JobBatch[int], Generic[AnswerT]):
    """A batch of messages, each of which has one answer. Each job is a message's index.

    A message whose answer does not belong to it is sent once more, because an earlier candidate may have written it.

    Args:
        pool: The pool whose processes answer.
        set_up_message: The message that sets up a process.
        process_count: The number of processes.
        messages: What to send, one message for each answer.
        answer_type: The type of each answer, unless it is Failed.
        timeout: The time limit for each answer, in seconds.
        can_continue: Returns whether a process can receive more messages after a failure.
    """

    def __init__(
        self,
        pool: WorkerPool,
        set_up_message: SetUp,
        process_count: int,
        messages: Sequence[Work],
        answer_type: type[AnswerT],
        timeout: float,
        can_continue: Callable[[Failed], bool] = lambda failed: True,
    ) -> None:
        super().__init__(pool, set_up_message, process_count, range(len(messages)))
        self.messages = messages
        self.answer_type = answer_type
        self.timeout = timeout
        self.can_continue = can_continue
        self.answers_by_index: dict[int, AnswerT | Failed] = {}
        self.retried_indices: set[int] = set()

    def wait_for_answer(self, index: int) -> AnswerT | Failed:
        """Wait for the answer to a message, and return it, or how the candidate failed."""
        while index not in self.answers_by_index:
            self.step()
        return self.answers_by_index[index]

    def assign_jobs(self) -> Sequence[Any]:
        while self.queue and self.idle_processes:
            process, index = self.idle_processes.pop(), self.queue.popleft()
            process.send(self.messages[index])
            self.mark_busy(process, index, self.timeout)
        return ()

    def receive_answer(self, process: MeasuringWorker, index: int) -> None:
        answer: AnswerT | Failed = process.recv(self.answer_type, Failed)
        self.answers_by_index[index] = answer
        if isinstance(answer, Failed) and not self.can_continue(answer):
            self.replace_process(process)
        else:
            self.mark_idle(process)

    def on_worker_died(self, index: int, death: WorkerDied, seconds: float) -> None:
        if isinstance(death, AnswerMismatch) and index not in self.retried_indices:
            self.retried_indices.add(index)
            self.queue.appendleft(index)
        else:
            self.answers_by_index[index] = failure_of(death, "running", seconds)
