"""Command line of the generator; CMake calls it."""

from __future__ import annotations

import argparse
from pathlib import Path

from .embed_kernels import write_kernels
from .embed_tuning import write_tuning
from .schema import Torch
from .tables import Emitter


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m torch_opencl_gen",
        description=__doc__,
        epilog="example: python -m torch_opencl_gen --root . "
        "--torch .venv/lib/python3.11/site-packages/torch "
        "--out build/generated --tables --kernels",
    )
    parser.add_argument("--root", type=Path, required=True, help="project root")
    parser.add_argument("--torch", type=Path, help="directory of the torch package")
    parser.add_argument("--out", type=Path, required=True, help="output directory")
    parser.add_argument("--tables", action="store_true", help="write the op tables")
    parser.add_argument("--json", type=Path, help="also write the op table here")
    parser.add_argument("--kernels", action="store_true", help="embed .cl files")
    parser.add_argument("--tuning", action="store_true", help="embed backend/tuning")
    arguments = parser.parse_args()
    if arguments.tables:
        Emitter(Torch(arguments.torch), arguments.root).write(
            arguments.out, arguments.json or arguments.out / "op_table.json"
        )
    if arguments.kernels:
        write_kernels(arguments.root, arguments.out)
    if arguments.tuning:
        write_tuning(arguments.root, arguments.out)


if __name__ == "__main__":
    main()
