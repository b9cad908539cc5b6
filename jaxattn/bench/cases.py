"""What is timed: shapes, masks and derivatives of models that people run.

Letters: see `jaxattn._typing`.
"""

from typing import NamedTuple

WINDOW = 256
DOCUMENT = 1024  # tokens in each packed document
MODES = ("forward", "grad", "jvp", "hvp")


class Case(NamedTuple):
    """One call: `[batch, T, heads, size]` with T = S; `mask` is full, causal, window or packed."""

    group: str
    mask: str
    length: int
    batch: int = 1
    heads: int = 8
    key_heads: int = 8
    size: int = 64

    @property
    def name(self) -> str:
        """As it is written in tables."""
        batch = f" B={self.batch}" if self.batch > 1 else ""
        heads = f" N={self.heads}" if self.heads != 8 else ""
        groups = f" K={self.key_heads}" if self.key_heads != self.heads else ""
        size = f" H={self.size}" if self.size != 64 else ""
        return f"{self.mask} T={self.length}{batch}{heads}{groups}{size}"

    @property
    def pairs(self) -> int:
        """Pairs of query and key that the mask allows, of one head."""
        length = self.length
        if self.mask == "causal":
            return length * (length + 1) // 2
        if self.mask == "window":
            short = min(WINDOW, length)
            return short * (short + 1) // 2 + (length - short) * WINDOW
        if self.mask == "packed":
            whole, rest = divmod(length, DOCUMENT)
            return whole * DOCUMENT * (DOCUMENT + 1) // 2 + rest * (rest + 1) // 2
        return length * length

    @property
    def scores(self) -> int:
        """Scores of all heads, masked ones included: what dense paths hold at once."""
        return self.batch * self.heads * self.length**2

    def flops(self, mode: str) -> float:
        """Of the matrix products that the derivative needs at least, over allowed pairs only.

        2 products forward; 6 with a tangent; 7 with a gradient, which computes scores again; 16 for
        a Hessian-vector product, 6 for value and tangent and 10 for the tangent of the gradient.
        """
        products = {"forward": 2, "jvp": 6, "grad": 7, "hvp": 16}[mode]
        return 2.0 * products * self.batch * self.heads * self.pairs * self.size


LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MODELS = (
    Case("BERT-base", "full", 128, batch=8, heads=12, key_heads=12),
    Case("BERT-base", "full", 512, batch=4, heads=12, key_heads=12),
    Case("GPT-2", "causal", 1024, batch=2, heads=12, key_heads=12),
    Case("Llama-like", "causal", 2048, heads=32, key_heads=8, size=128),
)
CASES = (
    *(Case("length", mask, length) for mask in ("full", "causal") for length in LENGTHS),
    *(Case("window", "window", length) for length in (2048, 8192, 32768)),
    *(Case("packed", "packed", length) for length in (2048, 8192)),
    *MODELS,
)
QUICK = (Case("length", "full", 128), Case("length", "causal", 512), Case("window", "window", 1024))
