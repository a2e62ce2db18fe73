"""Cases in processes of their own, so that a crash or a hang loses only itself."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from conformance.cases import Case

_START_SECONDS = 120


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
        worker = _Worker(device, limit, seed)
        try:
            while True:
                done.put(worker.ask(waiting.get_nowait(), time_limit))
        except queue.Empty:
            pass
        finally:
            worker.stop()

    for _ in range(jobs):
        threading.Thread(target=serve, daemon=True).start()
    for _ in cases:
        yield done.get()


class _Worker:
    def __init__(self, *arguments) -> None:
        self._arguments = arguments
        self._process = None

    def ask(self, case: Case, time_limit: float) -> Outcome:
        if self._process is None:
            self._start()
        start = time.monotonic()
        self._connection.send(case)
        status, message = "timeout", f"no answer within {time_limit:g} s"
        if self._connection.poll(time_limit):
            try:
                return self._connection.recv()
            except EOFError:
                self._process.join()
                status = "crash"
                message = f"the process ended with {self._process.exitcode}"
        self.stop()
        return Outcome(str(case), status, time.monotonic() - start, message)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, *self._arguments), daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._connection.poll(_START_SECONDS):
            raise RuntimeError("a worker did not start")
        self._connection.recv()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(connection, device: str, limit: int | None, seed: int) -> None:
    import torch
    import torch_opencl  # noqa: F401
    from conformance.cases import NotJudged, ask

    torch.set_num_threads(1)
    on = torch.device(device)
    connection.send("ready")
    while True:
        case = connection.recv()
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
        connection.send(
            Outcome(
                str(case),
                status,
                time.monotonic() - start,
                message,
                torch.opencl.fallback_stats(),
            )
        )
