"""Runs a command on two machines: network namespaces that a slow link joins.

In the command {rank} is 0 or 1, {is_host} 1 or 0, and {address} the machine's own; the
first one's is 10.77.0.1. Each machine's interface is eth0. Prints what both wrote, and
exits with 1 if one of them failed. Example, which needs no root:

    unshare --user --map-root-user --net python two_machines.py --megabits 50 \\
        python -m torch.distributed.run --nnodes=2 --nproc-per-node=1 \\
        --rdzv-backend=c10d --rdzv-endpoint=10.77.0.1:29500 \\
        --rdzv-conf=is_host={is_host} --local-addr={address} train.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import jobs

ADDRESSES = ("10.77.0.1", "10.77.0.2")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabits", type=float, default=50, help="a second, each way (default: 50)"
    )
    parser.add_argument(
        "--seconds", type=float, default=150, help="time limit (default: 150)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("a command is missing")
    if options.megabits <= 0:
        parser.error("--megabits must be positive")
    return options


def join(other: int, megabits: float) -> list[list[str]]:
    """Joins this namespace with that of process `other` by a link; for each of the
    two, the command that enters it."""
    enter = [[], ["nsenter", "--target", str(other), "--net"]]

    def call(*command: str, rank: int = 0) -> None:
        subprocess.run([*enter[rank], *command], check=True)

    pair = ["eth0", "type", "veth", "peer", "name", "eth0", "netns", str(other)]
    call("ip", "link", "add", *pair)
    rate = ["rate", f"{megabits}mbit", "burst", "32kb", "latency", "400ms"]
    for rank, address in enumerate(ADDRESSES):
        call("ip", "address", "add", f"{address}/24", "dev", "eth0", rank=rank)
        call("ip", "link", "set", "eth0", "up", rank=rank)
        call("ip", "link", "set", "lo", "up", rank=rank)
        call("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *rate, rank=rank)
    return enter


def main() -> int:
    options = parse()
    # It has said nothing until it has its namespace.
    second = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
        stdout=subprocess.PIPE,
    )
    try:
        second.stdout.readline()
        enter = join(second.pid, options.megabits)
        machines = []
        for rank, address in enumerate(ADDRESSES):
            given = {"rank": rank, "is_host": int(rank == 0), "address": address}
            command = [part.format(**given) for part in options.command]
            machines.append(
                subprocess.Popen(
                    [*enter[rank], *command],
                    env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        outputs = jobs.finish(machines, options.seconds)
    finally:
        second.kill()
    for address, output in zip(ADDRESSES, outputs, strict=True):
        print(f"== {address}\n{output}", flush=True)
    return int(any(machine.returncode != 0 for machine in machines))


if __name__ == "__main__":
    sys.exit(main())
