"""Values of scores that a kernel of flex_attention adds up, each sum by one work-item or
work-group in a fixed order, and what becomes of the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._inductor import ir, lowering
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V, ops
from torch.fx import GraphModule

from .flex_captures import Indices, Term, within

aten = torch.ops.aten
_SHARED = 16
"""Work-items of a GPU that have columns of the same rows."""

# By whether the device is a GPU.
HELPERS = {
    False: """static inline void add_run(global float *sums, float16 values, int count) {
  if (count <= 0) return;
  store_some_float32(sums, load_some_float32(sums, count) + values, count);
}
""",
    True: """static inline void add_one(global float *sums, float value, bool used) {
  if (used) *sums += value;
}
// Work-items (x, y) of the same y - x * STEP have scores of one diagonal.
#define STEP (4 / ITEM_ROWS)
static inline void add_diagonals(global float *sums, int place, int size, float value,
                                 local float *shares) {
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  shares[item] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item >= 16 + 15 * STEP) return;
  float sum = 0;
  for (int x = 0; x < 16; ++x) {
    const int y = item + STEP * (x - 15);
    if (y >= 0 && y < 16) sum += shares[y * 16 + x];
  }
  place += (item - 15 * STEP) * ITEM_ROWS;
  if (place >= 0 && place < size) sums[place] += sum;
}
""",
}


class Blocks(NamedTuple):
    """How a kernel divides the rows that it owns.

    Attributes:
        rows: in a block of the BlockMask.
        blocks: of them.
        panels: work-groups of a block.
        width: rows of a work-group.
    """

    rows: Any
    blocks: Any
    panels: Any
    width: int


class Sums:
    """The sums of a term.

    Args:
        term: whose values are added up.
        number: of the term.
        call: the arguments of flex_attention.
        blocks: of the kernel.
    """

    def __init__(self, term: Term, number: int, call, blocks: Blocks) -> None:
        self.term = term
        self.name = f"sums{number}"
        self.call = call
        self.blocks = blocks
        sizes = [call.batch, call.heads]
        own = call.keys if term.rows == "k" else call.queries
        if term.rows == "d":
            length = blocks.width + call.keys - 1
            sizes += [blocks.blocks, blocks.panels, length]
        elif term.rows == "qk":
            both = [call.queries, call.keys]
            sizes += both if call.is_gpu else both[::-1]
        else:
            sizes += [own, _SHARED] if call.is_gpu else [own]
        device = call.query.get_device()
        self.buffer = lowering._full(0, device, torch.float32, sizes)
        self.buffer.realize()

    # Text. Macros and variables are those of the kernels in
    # backend/attention/compiled_attention_*.clh.

    @property
    def parameters(self) -> list[str]:
        """Of the function that adds."""
        made = [f"global float *{self.name}"]
        if self.call.is_gpu and self.term.rows == "d":
            made += ["const int diagonal", "const int diagonals", "local float *shares"]
        return made

    @property
    def arguments(self) -> list[str]:
        """For the parameters, where the kernel calls the function."""
        is_gpu, rows = self.call.is_gpu, self.term.rows
        if rows == "d":
            length = f"({'ROWS' if is_gpu else 'WIDTH'} + KEYS - 1)"
            start = f"{self.name} + get_group_id(0) * (size_t){length}"
            if is_gpu:
                return [start, "i - l - j + (int)KEYS - 1", f"(int){length}", "shares"]
            return [f"{start} + v * 16 + KEYS - 1 - (key_)"]
        head = "((size_t)(batch_) * HEADS + (head_))"
        if rows == "qk":
            if is_gpu:
                place = f"({head} * QUERIES + (query_)) * KEYS + (key_)"
            else:
                place = f"({head} * KEYS + (key_)) * QUERIES + first + v * 16"
        else:
            own, size = ("(key_)", "KEYS") if rows == "k" else ("(query_)", "QUERIES")
            place = f"{head} * {size} + first + v * 16"
            if is_gpu:
                place = f"({head} * {size} + {own}) * {_SHARED} + ITEM_X"
        return [f"{self.name} + {place}"]

    def statement(self, value: str) -> str:
        if not self.call.is_gpu:
            value = f"select((float16)0, {value}, used)"
            return f"add_run({self.name}, {value}, owned);\n"
        if self.term.rows != "d":
            return f"add_one({self.name}, {value}, used && owned);\n"
        value = f"used && owned ? {value} : 0.0f"
        return f"add_diagonals({self.name}, diagonal, diagonals, {value}, shares);\n"

    # What becomes of them.

    def _folded(self) -> tuple[str, Any]:
        """The sums by the letters of their dimensions."""
        rows, sums = self.term.rows, self.buffer
        if rows == "d":
            return "bhd", _along_diagonals(sums, self.call, self.blocks)
        if rows == "qk":
            return ("bhqk" if self.call.is_gpu else "bhkq"), sums
        if self.call.is_gpu:
            sums = lowerings[aten.sum](sums, axis=[3])
        return "bh" + rows, sums

    def gradient(self, module: GraphModule, captured: Sequence[Any]):
        """What the term adds to the gradient of its captured tensor."""
        letters, values = self._folded()
        unused = [
            i for i, letter in enumerate(letters) if letter not in self.term.needs
        ]
        if unused:
            values = lowerings[aten.sum](values, axis=unused)
        letters = "".join(letter for letter in letters if letter in self.term.needs)
        if not self.term.indices:
            return values
        sizes = values.get_size()
        places = _places(letters, sizes, self.call)
        shape = captured[self.term.number].get_size()
        indices = Indices(module, places, list(captured)).of(self.term.indices)
        indices = [lowering.expand(each, sizes) for each in within(indices, shape)]
        device = self.call.query.get_device()
        target = lowering._full(0, device, torch.float32, shape)
        if self._is_distinct(dict(zip(letters, sizes, strict=True)), shape):
            return lowerings[aten.index_put.default](target, indices, values)
        target.realize()
        ir.IndexPutFallback(aten.index_put_.default, target, indices, values, True)
        return target

    def _is_distinct(self, sizes: dict[str, Any], shape: Sequence[Any]) -> bool:
        """Whether no two values have the same indices: each is itself one."""
        names = [getattr(i, "meta", {}).get("place") for i in self.term.indices]
        fits = V.graph.sizevars.statically_known_leq
        return set(filter(None, names)) == set(sizes) and all(
            fits(sizes[name], size)
            for name, size in zip(names, shape, strict=False)
            if name
        )


def _along_diagonals(sums, call, blocks: Blocks):
    """Sums of work-groups added up for each difference of query and key, the smallest
    first."""
    sums.realize()
    load = sums.make_loader()
    length = sums.get_size()[-1]

    def element(index):
        b, h, diagonal, block, panel = index
        place = diagonal - block * blocks.rows - panel * blocks.width
        at = ops.index_expr(place, torch.int64)
        zero = ops.constant(0, torch.int64)
        end = ops.index_expr(length, torch.int64)
        inside = ops.and_(ops.ge(at, zero), ops.lt(at, end))
        return ops.masked(inside, lambda: load([b, h, block, panel, place]), 0.0)

    spread = ir.Pointwise.create(
        device=call.query.get_device(),
        dtype=torch.float32,
        inner_fn=element,
        ranges=[
            *(call.batch, call.heads, call.queries + call.keys - 1),
            *(blocks.blocks, blocks.panels),
        ],
    )
    return lowerings[aten.sum](spread, axis=[3, 4])


def _places(letters: str, sizes: Sequence[Any], call) -> list:
    """Batch, head, query and key of each value; of a diagonal, those where it starts."""
    device = call.query.get_device()

    def numbers(letter: str):
        made = lowerings[torch.ops.prims.iota.default](
            sizes[letters.index(letter)],
            start=1 - call.keys if letter == "d" else 0,
            step=1,
            dtype=torch.int32,
            device=device,
            requires_grad=False,
        )
        return lowering.view(made, [-1 if each == letter else 1 for each in letters])

    places = {letter: numbers(letter) for letter in letters}
    if "d" in places:
        places["q"] = lowerings[aten.clamp_min.default](places["d"], 0)
        difference = lowerings[aten.neg.default](places["d"])
        places["k"] = lowerings[aten.clamp_min.default](difference, 0)
    zero = lowering._full(0, device, torch.int32, [1] * len(letters))
    return [places.get(name, zero) for name in "bhqk"]
