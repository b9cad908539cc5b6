"""The folder imports jax, numpy and the standard library, and works where it is copied to."""

import ast
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import jaxattn.verify

FOLDER = pathlib.Path(jaxattn.verify.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
LAZY = {"flax", "tokamax", "equinox", "keras", "torch", "pytest"}  # inside functions only


def imports(tree, top_level):
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_imports_nothing_but_jax_numpy_and_the_standard_library():
    assert len(FILES) > 20
    for path in FILES:
        tree = ast.parse(path.read_text())
        for name in imports(tree, top_level=True):
            root = name.split(".")[0]
            assert root in {"jax", "numpy"} or root in sys.stdlib_module_names, (path.name, name)
        for name in imports(tree, top_level=False):
            root = name.split(".")[0]
            assert root in {"jax", "numpy"} | LAZY or root in sys.stdlib_module_names, (
                path.name,
                name,
            )
            assert "jax._src" not in name


def test_relative_imports_stay_inside():
    for path in FILES:
        depth = len(path.relative_to(FOLDER).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= depth, path


def test_copied_folder_works(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "checks", ignore=shutil.ignore_patterns("__pycache__"))
    code = """
import sys, checks
report = checks.check_all(checks.dense_attention, only=("values",), dtypes=("float32",))
report.raise_for_failures()
assert not {name.split(".")[0] for name in sys.modules} & {"jaxattn", "flax", "pytest"}
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)


def test_files_and_functions_are_short():
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) <= 200, path.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                doc = len((ast.get_docstring(node) or "").splitlines())
                assert node.end_lineno - node.body[0].lineno - doc <= 30, (path.name, node.name)


TOLERANCE = re.compile(
    r"\d+ u\b|\de\d u|[Ee]xact|bit for bit|Bit for bit|same bits|rate|4\.5|s\.e\.|oracle"
)


@pytest.mark.parametrize("check", jaxattn.verify.CHECKS, ids=lambda check: check.name)
def test_docstring_has_tolerance_formula_and_mutant(check):
    """The table is the source: a docstring ends with the formula and the mutant in it."""
    text = " ".join((check.run.__doc__ or "").split())
    ending = f"{check.formula}. Kills {check.kills}."
    assert text.endswith(" " + ending)
    assert len(text.removesuffix(ending).split()) > 8
    assert TOLERANCE.search(text)
