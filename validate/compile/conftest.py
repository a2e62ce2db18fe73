"""Every test compiles anew, without graphs that another run has left."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fresh_inductor(tmp_path, monkeypatch):
    import torch._dynamo
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False), fresh_cache():
        yield
    torch._dynamo.reset()
