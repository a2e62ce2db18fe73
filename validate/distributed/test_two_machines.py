"""Two machines: network namespaces that a slow link joins."""

from __future__ import annotations

import subprocess
import sys

import jobs
import pytest
import two_machines

NAMESPACE = ["unshare", "--user", "--map-root-user", "--net"]
MEGABITS = 50


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    """Skips where the system gives no namespaces or slow links to its users."""
    limit = f"tc qdisc add dev lo root tbf rate {MEGABITS}mbit burst 32kb latency 9ms"
    tried = subprocess.run(
        [*NAMESPACE, "sh", "-ec", f"{limit}; unshare --net ip link; nsenter --version"],
        capture_output=True,
        text=True,
    )
    if tried.returncode != 0:
        pytest.skip(f"no network namespaces, or no tc: {tried.stderr.strip()}")


def run(device: object, *command: object) -> None:
    """Runs a job's command on both."""
    environment = jobs.environments(
        2,
        DEVICE=str(device),
        MASTER_ADDR=two_machines.ADDRESSES[0],
        MEGABITS=str(MEGABITS),
    )[0]
    ran = subprocess.run(
        [
            *NAMESPACE,
            *(sys.executable, jobs.FOLDER / "two_machines.py"),
            *("--megabits", str(MEGABITS)),
            *command,
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    text = ran.stdout + ran.stderr
    assert ran.returncode == 0 and text.count("all checks passed") == 2, text


def test_torchrun_on_each(first_device):
    """As docs/distributed.md starts it on every machine of a cluster."""
    run(
        first_device,
        *(sys.executable, "-W", "ignore", "-m", "torch.distributed.run"),
        *("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"),
        f"--rdzv-endpoint={two_machines.ADDRESSES[0]}:29500",
        # Hosts' names would say both.
        *("--rdzv-conf=is_host={is_host}", "--local-addr={address}"),
        jobs.FOLDER / "job_training.py",
    )


def test_what_the_link_carries(first_device):
    start = "RANK={rank} LOCAL_RANK=0 exec " + f"{sys.executable} -W ignore"
    run(first_device, "sh", "-c", f"{start} {jobs.FOLDER / 'job_link.py'}")
