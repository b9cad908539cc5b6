"""PyTorch's fused attention on a CPU, with its own layout `[B, N, T, H]`."""

import importlib
from collections.abc import Callable
from typing import Any

from jaxattn.bench.cases import Case
from jaxattn.bench.contestants import LeftOut, allowed, arrays


def prepare(case: Case, mode: str) -> Callable[[], Any]:
    """A call of `scaled_dot_product_attention`, forward or with its gradient."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise LeftOut("PyTorch is not installed") from None
    if mode not in ("forward", "grad"):
        raise LeftOut("its fused attention has no such derivative")
    query, key, value, cotangent = (
        torch.from_numpy(x).transpose(1, 2).contiguous() for x in arrays(case)
    )
    options: dict[str, Any] = {"is_causal": case.mask == "causal"}
    if case.mask in ("window", "packed"):
        options["attn_mask"] = torch.from_numpy(allowed(case))
    if case.heads != case.key_heads:
        options["enable_gqa"] = True
    attend = torch.nn.functional.scaled_dot_product_attention

    def forward() -> Any:
        with torch.no_grad():
            return attend(query, key, value, **options)

    def gradient() -> Any:
        operands = [x.detach().requires_grad_() for x in (query, key, value)]
        return torch.autograd.grad(attend(*operands, **options), operands, cotangent)

    return forward if mode == "forward" else gradient
