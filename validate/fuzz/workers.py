"""Cases in processes of their own, so that a crash or a hang loses only itself."""

from __future__ import annotations

import itertools
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuzz import edits as editing
from fuzz.generate import generate
from isolated import Lost, Worker

# Drivers keep what they built: 2.5 MB of each program with Intel's.
_CASES_OF_A_WORKER = 600


@dataclass
class Outcome:
    """What became of a case.

    ``status`` is pass, wrong, skip (a reason why the CPU cannot tell), crash,
    timeout or broken (the fuzzer itself). ``edits`` minimise what failed and
    ``text`` lists it.
    """

    case: int
    status: str
    subject: str = ""
    message: str = ""
    seconds: float = 0.0
    edits: list[str] = field(default_factory=list)
    text: str = ""

    @property
    def failed(self) -> bool:
        return self.status not in ("pass", "skip")


def serve(device: str):
    """In the worker: the function that answers (case, edits) by an Outcome. Without
    edits (None) it only makes the case."""
    import torch
    import torch_opencl  # noqa: F401
    from fuzz.judge import ShowsNothing, judge

    torch.set_num_threads(1)
    on = torch.device(device)

    def answer(request: tuple[int, list[str] | None]) -> Outcome:
        case, edits = request
        if edits is None:
            generate(case)
            return Outcome(case, "pass")
        start = time.monotonic()
        subject = text = ""
        try:
            program = editing.apply(generate(case), edits)
            subject, text = program.subject, editing.listing(program)
            verdict = judge(program, on)
            status, message = verdict.status, verdict.message
        except ShowsNothing as reason:
            status, message = "skip", f"ill-conditioned: {str(reason)[:200]}"
        except Exception as error:
            status, message = "broken", f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - start
        return Outcome(case, status, subject, message, seconds, edits, text)

    return answer


def ask(
    worker: Worker, case: int, edits: list[str] | None, time_limit: float
) -> Outcome:
    try:
        return worker.ask((case, edits), time_limit)
    except Lost as lost:
        return Outcome(case, lost.kind, "", str(lost), lost.seconds, edits or [])


def run(
    cases: Iterator[int],
    device: str,
    jobs: int,
    time_limit: float,
    minimise_seconds: float,
    serve: Callable = serve,
) -> Iterator[Outcome]:
    """Outcomes in the order in which they are known, until ``cases`` end.

    What fails is minimised for up to ``minimise_seconds``. ``serve`` makes the
    function that answers in a worker.
    """
    done: queue.SimpleQueue = queue.SimpleQueue()
    lock = threading.Lock()

    def following() -> int | None:
        with lock:
            return next(cases, None)

    def work() -> None:
        worker = Worker(serve, device)
        try:
            for asked in itertools.count(1):
                case = following()
                if case is None:
                    return
                outcome = ask(worker, case, [], time_limit)
                if outcome.failed and outcome.status != "broken" and minimise_seconds:
                    outcome = _minimised(worker, outcome, time_limit, minimise_seconds)
                done.put(outcome)
                if asked % _CASES_OF_A_WORKER == 0:
                    worker.stop()
        finally:
            worker.stop()
            done.put(None)

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    ended = 0
    while ended < jobs:
        outcome = done.get()
        if outcome is None:
            ended += 1
        else:
            yield outcome


def _tells_of_errors(outcome: Outcome) -> bool:
    """Of errors, where others tell of values."""
    return re.search(r"\w+ at (step|backward)", outcome.message) is not None


def _minimised(
    worker: Worker, outcome: Outcome, time_limit: float, seconds: float
) -> Outcome:
    if ask(worker, outcome.case, None, time_limit).status == "crash":
        outcome.message += "\n(while it is made: torch's CPU crashes)"
        return outcome
    program = generate(outcome.case)

    def still_fails(edits: list[str]) -> bool:
        found = ask(worker, outcome.case, edits, time_limit)
        is_alike = _tells_of_errors(found) == _tells_of_errors(outcome)
        return found.status == outcome.status and is_alike

    edits = editing.minimise(program, still_fails, seconds)
    smallest = ask(worker, outcome.case, edits, time_limit)
    if smallest.status != outcome.status:  # it does not fail every time
        smallest = outcome
        smallest.message += "\n(not each time)"
    smallest.subject = program.subject
    smallest.text = editing.listing(editing.apply(program, smallest.edits))
    return smallest
