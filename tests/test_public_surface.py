"""What the package shows, what it loads, and which way its imports point."""

import ast
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import jaxattn

PACKAGE = pathlib.Path(jaxattn.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

NAMES = [
    "IMPLEMENTATIONS",
    "Partial",
    "attention",
    "attention_scores",
    "attention_weights",
    "attention_with_weights",
    "biases",
    "cache",
    "compat",
    "cross_attention",
    "dropout",
    "explain",
    "masks",
    "merge",
    "merge_heads",
    "partial_attention",
    "positions",
    "project",
    "self_attention",
    "split_heads",
    "weighted_sum",
]

# Data flows down: a module imports only from rows above its own. Rows are modules or packages.
ORDER = [
    {"_typing", "_precision"},
    {"_validate"},
    {"projection", "scores", "softmax", "positions", "dropout", "masks", "biases", "cache"},
    {"path", "partial"},
    {"_door"},
    {
        "_hoist",
        "_mesh",
        "dense",
        "tiles",
        "spans",
        "layout",
        "plan",
        "steps",
        "products",
        "tile_scores",
        "blockwise",
    },
    {"dispatch"},
    {"explanation"},
    {"_explain_cli"},
    {"compat"},
    {"_one_head", "additive", "multiplicative", "channel", "_deformable_door", "deformable"},
    {"feature_maps", "linear_scan", "_linear_mask", "_linear_door", "linear", "grid"},
]
OUTSIDE = {"nn", "verify", "bench", "interop"}  # not loaded by `import jaxattn`


def test_names_are_pinned():
    """Adding a name is a decision: it belongs here, into the contents page and the changelog."""
    assert set(NAMES) <= set(jaxattn.__all__)
    assert sorted(jaxattn.__all__) == jaxattn.__all__
    assert all(hasattr(jaxattn, name) for name in jaxattn.__all__)
    shown = {name for name in vars(jaxattn) if not name.startswith("_")}
    loaded = {path.stem for path in PACKAGE.glob("*.py")} | {p.name for p in PACKAGE.iterdir()}
    assert shown - loaded <= set(jaxattn.__all__)


def test_the_contents_page_has_every_name():
    missing = [name for name in jaxattn.__all__ if name not in jaxattn.__doc__]
    assert missing == []


def test_implementations_begin_with_the_definition_or_end_with_it():
    names = [entry.name for entry in jaxattn.IMPLEMENTATIONS]
    assert "dense" in names and len(set(names)) == len(names)


def public_functions():
    """Every function and class that a public module offers, with its full name."""
    modules = {"jaxattn": jaxattn}
    for name in jaxattn.__all__:
        if inspect.ismodule(getattr(jaxattn, name)):
            modules[f"jaxattn.{name}"] = getattr(jaxattn, name)
    for prefix, module in modules.items():
        names = getattr(module, "__all__", None) or [
            name
            for name, x in vars(module).items()
            if not name.startswith("_") and getattr(x, "__module__", "") == module.__name__
        ]
        for name in names:
            if callable(getattr(module, name)):
                yield f"{prefix}.{name}", getattr(module, name)


NO_EXAMPLE = {
    "jaxattn.Partial",  # shown by merge
    "jaxattn.GridCost",  # shown by grid_cost
    "jaxattn.cache.KVCache",  # shown by append
    "jaxattn.cache.Readable",
    "jaxattn.masks.And",  # written `&`, `|`, `~`, and shown by the package
    "jaxattn.masks.Or",
    "jaxattn.masks.Not",
    "jaxattn.masks.Mask",
    "jaxattn.biases.Bias",
}


@pytest.mark.parametrize("name", [name for name, _ in public_functions()])
def test_docstrings(name):
    documented = dict(public_functions())[name]
    text = inspect.getdoc(documented)
    assert text and len(text.splitlines()[0]) > 10
    in_parts = name.split(".")
    helper = in_parts[1] == "dropout"  # its public face is the argument of `attention`
    if name not in NO_EXAMPLE and not helper:
        assert "Example:" in text and ">>>" in text, f"{name} shows no example"


def test_import_loads_no_framework():
    code = (
        "import sys, jaxattn; "
        "print({'flax', 'matplotlib', 'optax', 'orbax', 'chex', 'jax.experimental.pallas', "
        "'jaxattn.nn', 'jaxattn.interop', 'jaxattn.verify'} & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_public_jax(path):
    private = re.compile(r"jax\._src|from jax import _|import jaxlib|jax\.interpreters")
    assert not private.search(path.read_text())


def imports(path):
    """The jaxattn modules that a file imports, as dotted names inside the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = ["jaxattn", *path.relative_to(PACKAGE).parts][: -node.level or None]
            base = ".".join(here if node.level else []) + (
                "." if node.level and node.module else ""
            )
            names = [f"{base}{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "jaxattn" and rest:
                yield rest[0]


def part_of(path):
    """The module or package of a file: `scores`, `masks`, `nn`, or `__init__`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rows():
    return {module: i for i, modules in enumerate(ORDER) for module in modules}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows(path):
    part, row = part_of(path), rows()
    for target in imports(path):
        if part == "verify":
            assert target == "verify", (
                "verify judges anybody's attention, and imports nothing of ours"
            )
        elif part == "bench":
            assert target in {"bench", *jaxattn.__all__}, "bench times what users have"
        elif part == "interop":
            assert target == "interop", "interop knows names and arrays, and no module of ours"
        elif part in {"__init__", "__main__", "nn"}:
            assert part != "__init__" or target not in OUTSIDE
        else:
            assert target not in OUTSIDE, f"{part} must not load {target}"
            if part in row and target in row:
                assert row[target] <= row[part], f"{part} imports {target}, which stands below it"


def test_no_import_goes_in_circles():
    """Modules of one row may import each other, but not in a circle."""
    graph = {}
    for path in FILES:
        if part_of(path) not in OUTSIDE | {"__init__", "__main__"}:
            graph.setdefault(part_of(path), set()).update(imports(path))
    done, open_now = set(), []

    def visit(module):
        assert module not in open_now, f"a circle: {[*open_now, module]}"
        if module in done:
            return
        open_now.append(module)
        for target in graph.get(module, set()) - {module}:
            visit(target)
        done.add(open_now.pop())

    for module in graph:
        visit(module)


def test_every_module_has_its_place():
    """A new module of the core is put into a row, so that its arrows are held."""
    parts = {part_of(path) for path in FILES} - OUTSIDE - {"__init__", "__main__"}
    assert parts - set(rows()) == set()


def test_every_module_can_be_imported_alone():
    for path in PACKAGE.glob("*.py"):
        if path.stem not in {"__init__", "__main__"}:
            assert importlib.import_module(f"jaxattn.{path.stem}").__doc__
