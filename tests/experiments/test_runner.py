"""The runner: finds, runs, reports, and lets no experiment stop another."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import pytest

from experiments import __main__ as command
from experiments import page, report, runner

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8"
    "cf500f0003860180347d6cad0000000049454e44ae426082"
)
GOOD = """
    '''Two is two.

    Minutes: 0.1
    '''
    from pathlib import Path

    def run(out, quick):
        (out / "dot.png").write_bytes(Path(__file__).with_name("pixel.bin").read_bytes())
        claim = {"claim": "2 = 2 & <so> on", "expected": "2", "measured": 2.0, "holds": True}
        numbers = {"quick": quick, "limit": float("nan"), "text": "a\\nb", "pair": {"x": [1, 2]}}
        return {"claims": [claim], "numbers": numbers, "figures": [out / "dot.png"]}
"""
FALSE = """
    '''Two is three.

    Minutes: 2
    '''
    def run(out, quick):
        claim = {"claim": "2 = 3", "expected": "3", "measured": 2, "holds": False}
        return {"claims": [claim], "numbers": {}, "figures": []}
"""
RAISES = "'''Raises.'''\ndef run(out, quick):\n    raise RuntimeError('<broken> on purpose')"
INTERRUPTED = "'''Is stopped.\n\nMinutes: 3'''\ndef run(out, quick):\n    raise KeyboardInterrupt"
NEEDY = "'''Needs more.'''\nimport package_nobody_has\ndef run(out, quick): pass"
LAZY = "'''Needs more.'''\ndef run(out, quick):\n    import package_nobody_has.part"
OURS = "'''Is broken.'''\nimport jaxattn.part_nobody_wrote\ndef run(out, quick): pass"
HELPER = "def walk(): pass"


@pytest.fixture
def main(tmp_path, monkeypatch):
    """A function that runs the command line on experiments of the given sources."""
    number = len(sys.modules)  # a package of a new name each time: Python remembers modules

    def run_with(sources, *arguments):
        folder = tmp_path / f"experiments_{number}"
        folder.mkdir(exist_ok=True)
        (folder / "pixel.bin").write_bytes(PIXEL)
        for name, source in sources.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        found = runner.discover(folder)
        monkeypatch.setattr(runner, "discover", lambda *_: found)
        return command.command_line([*arguments, "--out", str(tmp_path / "report")])

    return run_with


def results(tmp_path):
    document = json.loads((tmp_path / "report" / "results.json").read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in document["experiments"]}


def test_when_every_claim_holds_the_status_is_0(main, tmp_path):
    assert main({"two": GOOD, "helper": HELPER}, "--quick") == 0
    entry = results(tmp_path)["two"]
    assert entry["status"] == "holds" and entry["numbers"]["quick"] is True
    assert entry["numbers"]["limit"] == "nan"
    assert (tmp_path / "report" / entry["figures"][0]).read_bytes() == PIXEL


@pytest.mark.parametrize("source", [FALSE, RAISES, OURS], ids=["false", "raises", "ours"])
def test_one_that_fails_is_reported_and_the_others_still_run(main, tmp_path, source):
    assert main({"a_bad_one": source, "two": GOOD}) == 1
    found = results(tmp_path)
    assert found["two"]["status"] == "holds"
    assert found["a_bad_one"]["status"] == ("fails" if source is FALSE else "raised")


def test_an_error_is_shown_with_its_traceback(main, tmp_path, capsys):
    main({"bad": RAISES})
    assert "RuntimeError: <broken> on purpose" in results(tmp_path)["bad"]["error"]
    assert "RuntimeError: <broken> on purpose" in capsys.readouterr().out
    html = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "RuntimeError: &lt;broken&gt; on purpose" in html


@pytest.mark.parametrize("source", [NEEDY, LAZY], ids=["import", "run"])
def test_a_missing_package_skips_with_the_reason(main, tmp_path, source):
    assert main({"needy": source, "two": GOOD}) == 0
    entry = results(tmp_path)["needy"]
    assert entry["status"] == "skipped" and "package_nobody_has" in entry["error"]


def test_the_reason_says_how_to_install_it_where_the_experiment_knows(main, tmp_path):
    """As those of pretrained models do."""
    source = """
        '''Needs weights.'''
        from experiments import pretrained
        def run(out, quick):
            pretrained.package("package_nobody_has")
    """
    assert main({"needy": source, "two": GOOD}) == 0
    entry = results(tmp_path)["needy"]
    assert entry["status"] == "skipped"
    assert entry["error"] == (
        "needs the package package_nobody_has, which is not installed; "
        'pip install "jaxattn[pretrained]"'
    )


def test_options_reach_the_experiment_that_has_them(main, tmp_path):
    source = GOOD.replace("(out, quick)", "(out, quick, model='x', prompt=None)", 1)
    source = source.replace('"quick": quick', '"model": model, "prompt": prompt')
    assert main({"generate": source, "two": GOOD}, "generate", "--prompt", "Alice was") == 0
    numbers = results(tmp_path)["generate"]["numbers"]
    assert numbers["model"] == "x" and numbers["prompt"] == "Alice was"


@pytest.mark.parametrize("names", [(), ("two",)])
def test_options_of_no_other(main, names, capsys):
    assert main({"generate": GOOD, "two": GOOD}, *names, "--model", "glassllm") == 2
    assert "--model belong to the experiment generate" in capsys.readouterr().out


def test_nothing_but_skipped_is_no_success(main):
    assert main({"needy": NEEDY}) == 1


def test_ctrl_c_reports_what_ran_so_far(main, tmp_path):
    sources = {"two": GOOD, "stopped": INTERRUPTED, "zzz": GOOD.replace("0.1", "9")}
    assert main(sources) == 130
    statuses = {name: entry["status"] for name, entry in results(tmp_path).items()}
    assert statuses == {"two": "holds", "stopped": "interrupted"}
    assert "interrupted" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_ctrl_c_before_anything_ended_keeps_the_earlier_report(main, tmp_path):
    names = ("report.html", "results.json")
    (tmp_path / "report").mkdir()
    for name in names:
        (tmp_path / "report" / name).write_text("earlier")
    assert main({"stopped": INTERRUPTED, "two": GOOD.replace("0.1", "9")}) == 130
    assert [(tmp_path / "report" / name).read_text() for name in names] == ["earlier"] * 2


def test_a_run_of_some_keeps_the_report_on_others(main, tmp_path):
    sources = {"two": GOOD, "three": FALSE}
    main(sources)
    main(sources, "two")
    kept = json.loads((tmp_path / "report" / "earlier-1-results.json").read_text(encoding="utf-8"))
    assert {entry["name"] for entry in kept["experiments"]} == {"two", "three"}
    assert set(results(tmp_path)) == {"two"}
    main(sources, "two")  # an earlier report that says nothing more is replaced
    assert not (tmp_path / "report" / "earlier-2-report.html").exists()
    main(sources, "three")  # and one that does is kept beside what was kept before
    for number, claim in ((1, "three"), (2, "two")):
        page = tmp_path / "report" / f"earlier-{number}-report.html"
        assert claim in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["earlier", "[]", '{"experiments": [1]}'])
def test_what_is_no_report_is_in_nobodys_way(main, tmp_path, text):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text(text)
    assert main({"two": GOOD}) == 0


def test_names_are_listed_whole(main, capsys):
    name = "a_name_of_more_than_half_a_line_of_eighty_characters"
    main({name: GOOD}, "--list")
    assert name in capsys.readouterr().out


def test_an_unusable_folder_is_one_line(main, tmp_path, capsys):
    (tmp_path / "report").write_text("a file")
    assert main({"two": GOOD}) == 2
    assert "--out must be a folder" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "must return a dict"),
        ("{'claims': [], 'numbers': {}, 'figures': []}", "no claim"),
        ("{'claims': [{'claim': 'x'}], 'numbers': {}, 'figures': []}", "a claim must be"),
        (
            "{'claims': [dict(claim='', expected='', measured=1, holds=1)],"
            " 'numbers': {}, 'figures': []}",
            "holds must be True or False",
        ),
        (
            "{'claims': [dict(claim='', expected='', measured=1, holds=True)],"
            " 'numbers': {}, 'figures': ['nowhere.png']}",
            "figures that do not exist: nowhere.png",
        ),
    ],
)
def test_a_result_of_another_form_is_an_error(main, tmp_path, returned, message):
    assert main({"odd": f"'''Odd.'''\ndef run(out, quick):\n    return {returned}"}) == 1
    assert message in results(tmp_path)["odd"]["error"]


def test_names_choose(main, tmp_path):
    assert main({"two": GOOD, "false": FALSE}, "two") == 0
    assert list(results(tmp_path)) == ["two"]


def test_an_unknown_name_lists_what_there_is(main, tmp_path, capsys):
    assert main({"two": GOOD}, "three") == 2
    assert "no experiment is named three; there are: two" in capsys.readouterr().out
    assert not (tmp_path / "report").exists()


def test_the_page_needs_nothing_else(main, tmp_path):
    main({"two": GOOD, "bad": RAISES})
    html = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|<script|<link|@import", html)
    assert all(source.startswith("data:image/png;base64,") for source in sources_of(html))
    assert len(sources_of(html)) == 1 and "url(" not in html
    assert "2 = 2 &amp; &lt;so&gt; on" in html and 'name="viewport"' in html
    assert "1 of 1 claims hold" in html and "--quick" not in html


def sources_of(html):
    return re.findall(r'src="([^"]*)"', html)


def test_the_shortest_comes_first_and_one_files_precision_is_its_own(main, tmp_path):
    narrow = (
        "import jax\n    def run(out, quick):\n        jax.config.update('jax_enable_x64', False)"
    )
    sources = {"b": GOOD.replace("def run(out, quick):", narrow), "a": FALSE}
    main(sources)
    assert list(results(tmp_path)) == ["b", "a"]
    assert jax.numpy.zeros(()).dtype == jax.numpy.float64


def test_headers_say_the_minutes():
    assert runner.expected_minutes("Claim.\n\nMinutes: 0.25\nExpected: 3") == 0.25
    assert runner.expected_minutes("takes about 5 minutes on 2 cores") == 5
    assert runner.expected_minutes("says nothing") == 1
    assert runner.expected_minutes("belongs at stride 32\nMinutes: 2") == 2


def test_ours_are_found_and_say_what_they_claim():
    found = {experiment.name: experiment for experiment in runner.discover()}
    assert {
        "attention_is_permutation_equivariant",
        "causal_masks_stop_gradients",
        "language_model",
        "scaling_prevents_saturation",
    } <= set(found)
    assert all(experiment.claim for experiment in found.values())
    assert "runner" not in found


def test_the_command_lists_them_without_running_one():
    run = subprocess.run(
        [sys.executable, "-m", "experiments", "--list"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "language_model" in run.stdout and not run.stderr


def test_numbers_are_read_at_a_glance():
    assert report.short(0.123456) == "0.1235"
    assert report.short([1.0, jax.numpy.float32(2.5)]) == "1, 2.5"
    assert page.duration(3.21) == "3.2 s" and page.duration(125) == "2 min 5 s"
