"""What is written runs: docstring examples, and every ```python block of README.md and docs/."""

import doctest
import importlib
import importlib.util
import pathlib
import pkgutil
import re

import jax
import pytest

import jaxattn

ROOT = pathlib.Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules():
    """Names of all modules of the package, without those that run as programs."""
    found = pkgutil.walk_packages(jaxattn.__path__, "jaxattn.")
    return ["jaxattn", *(module.name for module in found if not module.name.endswith("__main__"))]


@pytest.fixture
def default_jax():
    """Readers run JAX as it comes: float32, and promotion as usual."""
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


@pytest.mark.parametrize("name", modules())
def test_docstrings(name, default_jax):
    if name.startswith("jaxattn.nn"):
        pytest.importorskip("flax")
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=OPTIONS, verbose=False)
    assert result.failed == 0


def pages():
    """Pages that hold Python."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in paths if path.exists() and BLOCK.search(path.read_text())]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path, default_jax, tmp_path, monkeypatch):
    """Its blocks run in order, as a reader would; with `>>>` one also prints what it says."""
    monkeypatch.chdir(tmp_path)
    text, names = path.read_text(), {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        line, code = text[: match.start(1)].count("\n"), match[1]
        if is_foreign(code):
            continue
        if ">>> " in code:
            run_examples(code, names, path, line)
        else:
            # Padded, so that a traceback shows the page's own line.
            exec(compile("\n" * line + code, str(path), "exec"), names)


def is_foreign(code):
    """Whether the block's first line imports a package that is not installed, as Equinox may be."""
    first = re.match(r"import (\w+)", code)
    return first is not None and importlib.util.find_spec(first[1]) is None


def run_examples(code, names, path, line):
    """A block of `>>>` lines; its names stay for the blocks after it."""
    examples = doctest.DocTestParser().get_doctest(code, names, str(path), str(path), line)
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(examples, clear_globs=False)
    names.update(examples.globs)
    assert runner.failures == 0


def test_readme_has_an_example():
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("an installed copy without its README")
    assert BLOCK.search(readme.read_text())
