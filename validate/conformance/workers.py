"""Cases in processes of their own, so that a crash or a hang loses only itself."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from conformance.cases import SLOW_QUESTIONS, Case
from isolated import Lost, Worker

# Drivers keep what they built: 2.5 MB of each program with Intel's. A worker that
# asks for thousands of programs would run out of memory.
_CASES_OF_A_WORKER = 1000
# A compiled case counts as so many: its graphs and modules stay, too.
_CASES_OF_A_COMPILED = 8


@dataclass
class Outcome:
    """What became of a case.

    ``status`` is pass, wrong (another value or error than the CPU's), crash,
    timeout or skip; ``fallbacks`` counts the ops that ran on the CPU.
    """

    case: str
    status: str
    seconds: float
    message: str = ""
    fallbacks: dict[str, int] = field(default_factory=dict)


def run(
    cases: list[Case],
    device: str,
    limit: int | None,
    seed: int,
    jobs: int,
    time_limit: float,
) -> Iterator[Outcome]:
    """Outcomes in the order in which they are known."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    done: queue.SimpleQueue = queue.SimpleQueue()

    def serve() -> None:
        worker = Worker(_serve, device, limit, seed)
        try:
            asked = 0
            while True:
                case = waiting.get_nowait()
                done.put(_ask(worker, case, time_limit))
                is_compiled = case.question in SLOW_QUESTIONS
                asked += _CASES_OF_A_COMPILED if is_compiled else 1
                if asked >= _CASES_OF_A_WORKER:
                    worker.stop()
                    asked = 0
        except queue.Empty:
            pass
        finally:
            worker.stop()

    for _ in range(jobs):
        threading.Thread(target=serve, daemon=True).start()
    for _ in cases:
        yield done.get()


def _ask(worker: Worker, case: Case, time_limit: float) -> Outcome:
    try:
        return worker.ask(case, time_limit)
    except Lost as lost:
        return Outcome(str(case), lost.kind, lost.seconds, str(lost))


def _serve(device: str, limit: int | None, seed: int):
    import torch
    import torch_opencl  # noqa: F401
    from conformance.cases import NotJudged, ask

    torch.set_num_threads(1)
    on = torch.device(device)

    def answer(case: Case) -> Outcome:
        torch.opencl.reset_fallback_stats()
        start, status, message = time.monotonic(), "pass", ""
        try:
            ask(case, on, limit, seed)
        except NotJudged as error:
            status, message = "skip", str(error)
        except Exception as error:
            status = "wrong"
            message = str(error) or repr(error)
            if not isinstance(error, AssertionError):
                message = f"{type(error).__name__}: {message}"
        return Outcome(
            str(case),
            status,
            time.monotonic() - start,
            message,
            torch.opencl.fallback_stats(),
        )

    return answer
