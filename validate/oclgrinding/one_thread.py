"""A pytest plugin: gradients are computed by the thread that asks for them.

Two threads may use one OpenCL queue, but oclgrind's queues are not safe for it.
"""

from __future__ import annotations

import torch


def pytest_runtest_setup() -> None:
    torch.autograd.set_multithreading_enabled(False)
