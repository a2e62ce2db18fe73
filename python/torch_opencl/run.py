"""Runs a program written for CUDA on the opencl device.

    python -m torch_opencl.run train.py --epochs 3
    python -m torch_opencl.run -m package.module --epochs 3
    python -m torch_opencl.run --explain train.py

The program is not changed: see ``torch_opencl.as_cuda``. ``--explain`` says at the
end, on standard error, what was redirected and how often.
"""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_opencl.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [--explain] (SCRIPT | -m MODULE) [ARGUMENT ...]",
    )
    parser.add_argument(
        "--explain", action="store_true", help="say what was redirected"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module")
    parser.add_argument("program", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    return parser.parse_args()


def _explain(process: int) -> None:
    # Forked workers leave by os._exit, but not all do.
    if os.getpid() == process:
        from ._as_cuda import explanation

        sys.stderr.write(explanation())


def main() -> None:
    options = _parse()
    from ._as_cuda import as_cuda
    from ._as_cuda._backends import explain_import_error

    as_cuda()
    if options.explain:
        atexit.register(_explain, os.getpid())
    sys.argv = [options.program, *options.arguments]
    try:
        if options.module:
            sys.path[0] = os.getcwd()
            runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(options.program))
            runpy.run_path(options.program, run_name="__main__")
    except ImportError as error:
        explain_import_error(error)
        raise


if __name__ == "__main__":
    main()
