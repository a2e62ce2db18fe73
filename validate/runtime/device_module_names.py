"""Which names torch's own Python code reads on a device's module.

torch finds ``torch.cuda`` or ``torch.opencl`` by a device's type, and asks it for
names with ``hasattr`` or a default, public or not: a missing one is no error, but
another behaviour. So the installed torch is searched for them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

_ROOT = Path(torch.__file__).parent
# torch's tests, and what is for other devices only
_NOT_SEARCHED = ("testing", "cuda", "xpu", "mps", "mtia")

_GET_MODULE = re.compile(
    r"get_device_module|_get_device_handle|_FSDPDeviceHandle|\bdevice_mod(ule)?\b"
    r"|_get_custom_mod_func|_get_device_attr|getattr\(\s*torch,\s*[^\"'\s]"
)
_FUNCTIONS = {
    "get_device_module",
    "_get_device_module",
    "_get_device_handle",
    "from_device",  # of FSDP's device handle
}
_DEVICE = re.compile(r"device|backend|privateuse|accelerator")
_VARIABLES = {"device_module", "device_mod", "device_handle", "_device_handle"}


def _last(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_lookup(node: ast.AST) -> bool:
    """``torch.get_device_module(...)`` and the like, ``getattr(torch, device)``."""
    if not isinstance(node, ast.Call):
        return False
    if _last(node.func) != "getattr":
        return _last(node.func) in _FUNCTIONS
    return (
        len(node.args) > 1
        and ast.unparse(node.args[0]) == "torch"
        and not isinstance(node.args[1], ast.Constant)
        and _DEVICE.search(ast.unparse(node.args[1])) is not None
    )


def _names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    modules, texts = set(_VARIABLES), {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in getattr(node, "targets", None) or [node.target]:
            if name := _last(target):
                if _is_lookup(node.value):
                    modules.add(name)
                if isinstance(node.value, ast.Constant):
                    texts[name] = node.value.value

    def is_module(node: ast.AST) -> bool:
        return _is_lookup(node) or _last(node) in modules

    for node in nodes:
        if isinstance(node, ast.Attribute) and is_module(node.value):
            yield node.attr, node.lineno
        if not isinstance(node, ast.Call):
            continue
        function, arguments = _last(node.func), node.args
        if function in ("getattr", "hasattr") and is_module(arguments[0]):
            asked = arguments[1]
            name = getattr(asked, "value", None) or texts.get(_last(asked))
            if isinstance(name, str):
                yield name, node.lineno
        elif function == "_get_custom_mod_func" and arguments:
            if isinstance(arguments[0], ast.Constant):
                yield arguments[0].value, node.lineno
        elif function == "_get_device_attr" and isinstance(arguments[0], ast.Lambda):
            parameter = arguments[0].args.args[0].arg
            for read in ast.walk(arguments[0].body):
                if isinstance(read, ast.Attribute) and _last(read.value) == parameter:
                    yield read.attr, node.lineno


def names_read_by_torch() -> dict[str, list[str]]:
    """Name -> the places (``file:line``) that read it."""
    places = defaultdict(list)
    for path in sorted(_ROOT.rglob("*.py")):
        relative = path.relative_to(_ROOT)
        if relative.parts[0] in _NOT_SEARCHED:
            continue
        text = path.read_text(encoding="utf-8")
        if _GET_MODULE.search(text):
            for name, line in _names_in(ast.parse(text)):
                places[name].append(f"{relative}:{line}")
    return dict(places)
