"""Cards whose time is predicted, with what the model assumes of each.

Peak and bandwidth are the vendors' figures at the boost clock. What a fused
multiply-add costs follows from how many lanes issue one instruction a cycle:

- RDNA 2 and 4, Ampere, Ada, Hopper: as many as compute, so of the peak a loop
  reaches its multiply-adds per issued instruction. RDNA 3's peak counts pairs
  (`width` 2): pairs count as two multiply-adds of one issue.
- GCN and Turing issue something else beside: scalar instructions and branches
  on GCN, every second instruction on Turing (`width` 0.5).
- Xe and Mali have no disassembler here: their loops are taken to be as RDNA 2's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """
    Attributes:
        target: whose compiled kernels stand for it.
        units: compute units, multiprocessors, Xe cores or shader cores.
        tera: 10^12 float32 operations a second, a multiply-add being two.
        giga: 10^9 bytes a second of memory.
        width: multiply-adds that one issued instruction of a lane can be at most,
            as the peak counts.
        local_words: 32-bit words of local memory a unit reads for a multiply-add
            of its peak.
        launch: seconds between the ends of two dependent, empty launches.
        waves: that hide a unit's latencies, below which rates fall in proportion.
    """

    name: str
    target: str
    units: int
    tera: float
    giga: float
    width: float = 1
    local_words: float = 0.5
    launch: float = 5e-6
    waves: int = 8


CARDS = {
    card.name: card
    for card in (
        Card("RX 580", "gfx906", 36, 6.17, 256, launch=8e-6),
        Card("RX 6600 XT", "gfx1030", 32, 10.6, 256),
        Card("RX 7900 XTX", "gfx1100", 96, 61.4, 960, width=2, local_words=0.25),
        Card("Arc A770", "dg2", 32, 19.7, 560, local_words=0.25, launch=8e-6),
        Card("Iris Xe", "dg2", 6, 2.07, 60, local_words=0.25, launch=8e-6),
        Card("GTX 1080", "sm_75", 20, 8.87, 320, local_words=0.25),
        Card("RTX 2060", "sm_75", 30, 6.45, 336, width=0.5, local_words=0.5),
        Card("RTX 2060S", "sm_75", 34, 7.18, 448, width=0.5, local_words=0.5),
        Card("RTX 3060", "sm_86", 28, 12.7, 360, local_words=0.25),
        Card("RTX 4090", "sm_86", 128, 82.6, 1008, local_words=0.25),
        Card("H100", "sm_90", 132, 66.9, 3350, local_words=0.25),
        Card("H200", "sm_90", 132, 66.9, 4800, local_words=0.25),
        Card("Mali G78", "gfx1030", 14, 1.2, 44, local_words=0.25, launch=20e-6),
    )
}
