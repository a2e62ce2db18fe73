"""The reductions: one entry an op."""

from torch_opencl_gen.table import Reduction

_MAXIMUM = {
    "state": "value_index_t",
    "identity": "value_at(LOWEST, LONG_MAX)",
    "step": "greater_at(state, value_at(x, index))",
    "combine": "greater_at(a, b)",
}
_MINIMUM = {
    "state": "value_index_t",
    "identity": "value_at(HIGHEST, LONG_MAX)",
    "step": "smaller_at(state, value_at(x, index))",
    "combine": "smaller_at(a, b)",
}

REDUCTION = (
    Reduction("sum.IntList_out", "sum_stub", "0", "state + x", "a + b"),
    Reduction(
        "nansum.out",
        "nansum_stub",
        "0",
        "IS_NAN(x) ? state : state + x",
        "a + b",
        also=("nansum",),
    ),
    Reduction(
        "mean.out", "mean_stub", "0", "state + x", "a + b", result="state / count"
    ),
    Reduction("prod.int_out", "prod_stub", "1", "state * x", "a * b", also=("prod",)),
    Reduction(
        "amax.out",
        "max_values_stub",
        "LOWEST",
        "greater_of(x, state)",
        "greater_of(a, b)",
    ),
    Reduction(
        "amin.out",
        "min_values_stub",
        "HIGHEST",
        "smaller_of(x, state)",
        "smaller_of(a, b)",
    ),
    Reduction("argmax.out", "argmax_stub", result="state.index", **_MAXIMUM),
    Reduction("argmin.out", "argmin_stub", result="state.index", **_MINIMUM),
    Reduction(
        "all.out",
        "and_stub",
        "1",
        "state && x != 0",
        "a && b",
        state="int",
        also=("all.all_out", "all.dims_out"),
    ),
    Reduction(
        "any.out",
        "or_stub",
        "0",
        "state || x != 0",
        "a || b",
        state="int",
        also=("any.all_out", "any.dims_out"),
    ),
    Reduction(
        "var.correction_out",
        "std_var_stub",
        "welford_of(0, 0, 0)",
        "welford_add(state, x)",
        "welford_merge(a, b)",
        state="welford_t",
        results=("deviation(state, correction, take_sqrt)", "state.mean"),
        scalars="correction take_sqrt",
        also=(
            "var.correction",
            "std.correction",
            "std.correction_out",
            "var_mean.correction",
            "std_mean.correction",
        ),
        opinfo="var",
    ),
    Reduction(
        "linalg_vector_norm.out",
        "norm_stub",
        "norm_identity(ord)",
        "norm_step(state, x, ord)",
        "norm_combine(a, b, ord)",
        result="norm_result(state, ord)",
        scalars="ord",
        opinfo="linalg.vector_norm",
    ),
)
