"""The contents page of jaxattn.nn."""

import subprocess
import sys

import jaxattn.nn


def test_every_name_is_on_the_contents_page():
    assert sorted(jaxattn.nn.__all__) == jaxattn.nn.__all__
    for name in jaxattn.nn.__all__:
        assert hasattr(jaxattn.nn, name)
        assert name in jaxattn.nn.__doc__


def test_without_flax_the_error_says_how_to_get_it():
    code = "import sys; sys.modules['flax'] = None; import jaxattn; import jaxattn.nn"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert 'ImportError: jaxattn.nn needs Flax; pip install "jaxattn[flax]"' in run.stderr
