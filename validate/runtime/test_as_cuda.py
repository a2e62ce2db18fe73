"""Programs written for CUDA run unchanged on opencl, with the CPU's results.

The programs of validate/programs take the CPU where there is no GPU, so that the
reference is the same file run without torch_opencl.run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from script import run_process, run_python, run_script

_PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
# Weights that were trained in float16 against float32's.
_TOLERANCES = {"mixed_precision": 2e-2}


def _run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "torch_opencl.run", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=170,
    )


def _reference(program: Path, file: Path) -> dict:
    subprocess.run([sys.executable, program, file], check=True, timeout=170)
    return torch.load(file)


@pytest.mark.parametrize(
    "name",
    [
        "checkpoints",
        "classifier",
        "compiled",
        "device_checks",
        "distributed",
        "graphs",
        "mixed_precision",
        "runtime_interface",
    ],
)
def test_a_program_gives_the_results_of_the_cpu(name: str, tmp_path: Path) -> None:
    program = _PROGRAMS / f"{name}.py"
    process = _run("--explain", program, tmp_path / "opencl.pt")
    assert process.returncode == 0, process.stderr
    assert "redirected to opencl:" in process.stderr
    actual = torch.load(tmp_path / "opencl.pt")
    expected = _reference(program, tmp_path / "cpu.pt")
    assert actual.keys() == expected.keys()
    tolerance = _TOLERANCES.get(name, 1e-4)
    for key, value in actual.items():
        rows = value[: len(expected[key])]  # a program checks more forms on a GPU
        torch.testing.assert_close(
            rows, expected[key], rtol=tolerance, atol=tolerance, msg=key
        )


def test_spawned_processes_know_the_device(tmp_path: Path) -> None:
    process = _run(_PROGRAMS / "spawned.py", tmp_path / "opencl.pt")
    assert process.returncode == 0, process.stderr
    assert {k: v.tolist() for k, v in torch.load(tmp_path / "opencl.pt").items()} == {
        "squares": [0.0, 1.0, 4.0, 9.0],
        "doubled": [0.0, 2.0, 4.0, 6.0],
    }


def test_what_cannot_run_says_so() -> None:
    process = _run(_PROGRAMS / "refused.py", "import")
    assert process.returncode == 1
    lines = process.stdout.splitlines()
    assert len(lines) == 6, process.stderr
    for text in ("the driver's own tools", "NCCL needs", "CUDA source"):
        assert any(text in line for line in lines), text
    assert "cupy has kernels for CUDA only" in process.stderr


def test_a_module_runs_with_its_arguments(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(
        "import sys, torch\n"
        "print(sys.argv[1:], torch.ones(1, device='cuda').is_cuda, __name__)\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "torch_opencl.run", "-m", "package.train", "--lr", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.stdout == "['--lr', '1'] True __main__\n", process.stderr


def test_nothing_is_redirected_without_it() -> None:
    run_python(
        "import torch\n"
        "import torch_opencl\n"
        "assert not torch.cuda.is_available()\n"
        "assert torch.device('cuda').type == 'cuda'\n"
        "assert torch.device('opencl').type == 'opencl'\n"
        "assert torch.Tensor.cuda is torch._C.TensorBase.cuda\n"
        "assert not torch.ones(1, device='opencl').is_cuda\n",
        TORCH_OPENCL_AS_CUDA="0",
    )


def test_a_program_can_ask_for_it_more_than_once() -> None:
    printed = run_python(
        "import torch, torch_opencl\n"
        "torch_opencl.as_cuda()\n"
        "count = torch.cuda.device_count\n"
        "torch_opencl.as_cuda()\n"
        "assert torch.cuda.device_count is count\n"
        "print(torch.ones(2, device='cuda').sum().item())\n"
    )
    assert printed == "2.0\n"


def test_the_environment_hides_devices() -> None:
    code = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    printed = run_python(code, TORCH_OPENCL_AS_CUDA="1", CUDA_VISIBLE_DEVICES="")
    assert printed == "False 0\n"
    printed = run_python(code, TORCH_OPENCL_AS_CUDA="1", CUDA_VISIBLE_DEVICES="0")
    assert printed == "True 1\n"


def test_a_child_selects_devices_by_its_own_environment() -> None:
    if torch.opencl.device_count() < 2:
        pytest.skip("there is one OpenCL device")
    shown = "import torch; print(torch.opencl.get_device_properties(0))"
    script = f"""
        import os, subprocess, sys
        code = {shown!r}
        exec(code, {{}})
        sys.stdout.flush()
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        subprocess.run([sys.executable, "-c", code], check=True)
    """
    first = run_python(shown, TORCH_OPENCL_DEVICES="0")
    second = run_python(shown, TORCH_OPENCL_DEVICES="1")
    assert first != second
    visible = {
        "TORCH_OPENCL_AS_CUDA": "1",
        "TORCH_OPENCL_DEVICES": "",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    assert run_script(script, **visible) == first + second
    # The device's own variable goes first.
    visible["TORCH_OPENCL_DEVICES"] = "1"
    assert run_python(shown, **visible) == second


def test_a_program_selects_devices_before_their_first_use() -> None:
    if torch.opencl.device_count() < 2:
        pytest.skip("there is one OpenCL device")
    printed = run_script(
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        print(torch.opencl.device_count())
        """,
        TORCH_OPENCL_AS_CUDA="1",
        TORCH_OPENCL_DEVICES="",
    )
    assert printed == "1\n"


@pytest.mark.parametrize("value", ["false", "true", "2", ""])
def test_the_variable_is_0_or_1(value: str) -> None:
    process = run_process(
        "import torch\n"
        "assert torch.device('cuda').type == 'cuda'\n"
        "try:\n"
        "    torch.ones(1, device='opencl')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n",
        TORCH_OPENCL_AS_CUDA=value,
    )
    for text in (process.stdout, process.stderr):  # the second is a warning's
        assert f"TORCH_OPENCL_AS_CUDA={value} is not valid" in text


def test_types_keep_a_tensors_device() -> None:
    if torch.opencl.device_count() < 2:
        pytest.skip("there is one OpenCL device")
    printed = run_script(
        """
        x = torch.ones(2, device="cuda:1")
        for wanted in ("torch.cuda.HalfTensor", torch.cuda.LongTensor):
            print(x.type(wanted).device, x.type(wanted).dtype)
        print(torch.ones(2).type(torch.cuda.FloatTensor).device)
        """,
        TORCH_OPENCL_AS_CUDA="1",
    )
    assert printed.splitlines() == [
        "cuda:1 torch.float16",
        "cuda:1 torch.int64",
        "cuda:0",
    ]


def test_saved_files_name_the_devices_of_cuda(tmp_path: Path) -> None:
    """As a machine with CUDA looks for them, of this one's every device."""
    file = tmp_path / "saved.pt"
    last = torch.opencl.device_count() - 1
    code = f"""
        file = {str(file)!r}
        x = torch.arange(3.0, device="cuda:{last}")
        for options in ({{}}, {{"_use_new_zipfile_serialization": False}}):
            torch.save([x, x[1:]], file, **options)
            loaded, view = torch.load(file)
            assert loaded.device == view.device == x.device
            assert loaded.tolist() == [0, 1, 2] and view.tolist() == [1, 2]
    """
    run_script(code, TORCH_OPENCL_AS_CUDA="1")
    loaded, _ = torch.load(file, map_location={f"cuda:{last}": "cpu"})
    assert loaded.device.type == "cpu" and loaded.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="a CUDA device"):
        torch.load(file)


def test_files_saved_without_it_load_by_the_names_of_cuda(tmp_path: Path) -> None:
    file = tmp_path / "saved.pt"
    torch.save(torch.arange(3.0, device="opencl:0"), file)
    printed = run_script(
        f"""
        file = {str(file)!r}
        print(torch.load(file).device)
        print(torch.load(file, map_location={{"cuda:0": "cpu"}}).device)
        seen = []
        torch.load(file, map_location=lambda storage, name: seen.append(name))
        print(*seen)
        """,
        TORCH_OPENCL_AS_CUDA="1",
    )
    assert printed.splitlines() == ["cuda:0", "cpu", "cuda:0"]


def test_the_example_of_the_docs_runs() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "cuda-programs.md"
    block = page.read_text().split("```python\n")[1].split("```")[0]
    run_python(block)
