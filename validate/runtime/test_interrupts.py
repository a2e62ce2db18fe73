"""Ctrl-C and other signals while the host waits for a device."""

import pytest
from script import LONG_KERNEL, run_script

# Signals are sent while a kernel runs, whose length other tests change.
slow = pytest.mark.slow
LONG = "SECONDS = 3.0\n" + LONG_KERNEL

KINDS = ("device", "stream", "event", "item", "cpu", "write")
WAITS = """
event = torch.Event(DEVICE)
WAITS = {
    "device": lambda: torch.opencl.synchronize(DEVICE),
    "stream": lambda: torch.opencl.current_stream(DEVICE).synchronize(),
    "event": lambda: event.synchronize(),
    "item": lambda: x[0].item(),
    "cpu": lambda: x.cpu(),
    "write": lambda: x.copy_(torch.ones(4096)),
}
"""


@slow
@pytest.mark.parametrize("wait", KINDS)
def test_ctrl_c_ends_a_wait(device, wait):
    run_script(
        LONG
        + WAITS
        + f"wait = WAITS[{wait!r}]\n"
        + """
enqueue(COUNT)
event.record(torch.opencl.current_stream(DEVICE))
sent = []
def send():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.3, send).start()
start = time.perf_counter()
try:
    wait()
    raise SystemExit("the wait was not interrupted")
except KeyboardInterrupt:
    seen = time.perf_counter() - sent[0]
assert seen < 0.3, seen
assert time.perf_counter() - start < 0.9 * SECONDS, "the kernel was waited for"
# The device goes on, and can be used and waited for.
assert abs(x[0].item() - 1) < 1e-3
assert x.mul(2).sum().item() == 2 * 4096
""",
        device,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wait", KINDS)
def test_ctrl_c_is_seen_at_once(device, wait):
    """Not when the kernel ends; in one of three attempts, on a busy machine."""
    run_script(
        "SECONDS = 1.0\n"
        + LONG_KERNEL
        + WAITS
        + f"wait = WAITS[{wait!r}]\n"
        + """
def seen():
    sent = []
    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    enqueue(COUNT)
    event.record(torch.opencl.current_stream(DEVICE))
    try:
        threading.Timer(0.1, send).start()
        wait()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    raise SystemExit("the wait was not interrupted")

for _ in range(3):
    seconds = seen()
    assert abs(x[0].item() - 1) < 1e-3
    if seconds < 0.3:
        break
else:
    raise SystemExit(f"seen after {seconds} s")
""",
        device,
    )


@slow
def test_handlers_run_and_other_threads_go_on(device):
    run_script(
        LONG
        + """
handled, counted, stopped = [], [0], threading.Event()
signal.signal(signal.SIGALRM, lambda *_: handled.append(time.perf_counter()))
def count():
    while not stopped.wait(0.01):
        counted[0] += 1
threading.Thread(target=count, daemon=True).start()
enqueue(COUNT)
start = time.perf_counter()
signal.setitimer(signal.ITIMER_REAL, 0.3)
value = x[0].item()
end = time.perf_counter()
stopped.set()
assert handled and handled[0] - start < 0.6, (handled, start)
assert end - start > 0.4, "a handler that raises nothing ended the wait"
assert abs(value - 1) < 1e-3
assert counted[0] > 20, counted
""",
        device,
    )


@slow
def test_a_kernel_that_was_short_may_be_long_the_next_time(device):
    run_script(
        LONG
        + """
values = torch.ones(64, device=DEVICE)
for _ in range(50):
    assert values.add(1).sum().item() == 128
    enqueue(1)
    x[0].item()
enqueue(COUNT)
threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.perf_counter()
try:
    values.sum().item()
    raise SystemExit("the wait was not interrupted")
except KeyboardInterrupt:
    seconds = time.perf_counter() - start
assert seconds < 0.7, seconds
""",
        device,
    )


@slow
@pytest.mark.parametrize("wait", ["device", "item"])
def test_a_wait_that_is_interrupted_leaves_reports(device, wait):
    """A bad index is raised by the wait after it."""
    run_script(
        LONG
        + WAITS
        + f"wait = WAITS[{wait!r}]\n"
        + """
index = torch.tensor([1, 4], device=DEVICE)
torch.ones(4, device=DEVICE).gather(0, index)
enqueue(COUNT)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    wait()
    raise SystemExit("the wait was not interrupted")
except KeyboardInterrupt:
    pass
try:
    wait()
    raise SystemExit("the index was lost")
except IndexError as error:
    assert "index 4 is out of bounds" in str(error)
wait()
""",
        device,
    )
