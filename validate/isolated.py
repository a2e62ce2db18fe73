"""Work in another process, so that a crash or a hang loses only itself."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

_START_SECONDS = 300


class Lost(Exception):
    """The process ended or did not answer in time; ``kind`` is crash or timeout."""

    def __init__(self, kind: str, text: str, seconds: float) -> None:
        super().__init__(text)
        self.kind = kind
        self.seconds = seconds


class Worker:
    """A process that answers requests one by one; another one replaces it after
    it was lost.

    Args:
        serve: run in the process; is given ``arguments`` and returns the function
            that answers a request.
    """

    def __init__(self, serve: Callable, *arguments) -> None:
        self._serve = serve
        self._arguments = arguments
        self._process = None

    def ask(self, request, time_limit: float):
        """The answer.

        Raises:
            Lost: there is none, and the process is gone.
        """
        if self._process is None:
            self._start()
        start = time.monotonic()
        self._connection.send(request)
        kind, text = "timeout", f"no answer within {time_limit:g} s"
        if self._connection.poll(time_limit):
            try:
                return self._connection.recv()
            except EOFError:
                self._process.join()
                kind = "crash"
                text = f"the process ended with {self._process.exitcode}"
        self.stop()
        raise Lost(kind, text, time.monotonic() - start)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_loop, args=(theirs, self._serve, self._arguments), daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._connection.poll(_START_SECONDS):
            raise RuntimeError("a worker process did not start")
        self._connection.recv()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _loop(connection, serve: Callable, arguments: tuple) -> None:
    answer = serve(*arguments)
    connection.send("ready")
    while True:
        connection.send(answer(connection.recv()))
