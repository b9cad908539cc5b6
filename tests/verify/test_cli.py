"""The command: exit status, files, progress, interrupts and wrong usage."""

import json

import jax
import pytest

from jaxattn.verify import cli

RIGHT = "jaxattn.verify:dense_attention"
WRONG = "jaxattn.verify.mutants:no_scale"


def test_pass_and_fail_are_in_the_exit_status(capsys):
    assert cli.main([RIGHT, "--only=oracle", "--dtypes=float32"]) == 0
    assert cli.main([WRONG, "--only=oracle", "--dtypes=float32"]) == 1
    captured = capsys.readouterr()
    assert "1 passed, 0 failed" in captured.out and "0 passed, 1 failed" in captured.out
    line = f"python -m jaxattn verify {WRONG} --only oracle --dtypes float32 --seed 0"
    assert line in captured.out
    assert cli.main(line.split()[4:]) == 1  # it shows the failure again
    assert "[1/1] oracle float32: fail" in captured.err


def test_files_are_written(tmp_path, capsys):
    paths = [str(tmp_path / name) for name in ("report.json", "report.html")]
    arguments = ["--only=values", "--quick", f"--json={paths[0]}", f"--html={paths[1]}"]
    assert cli.main([RIGHT, "--supports=lse", *arguments]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["supports"] == ["lse"]
    assert "<table>" in (tmp_path / "report.html").read_text()


def test_interrupt_keeps_what_was_measured(tmp_path, capsys, monkeypatch):
    real = cli.results

    def interrupted(*arguments, **keywords):
        for count, result in enumerate(real(*arguments, **keywords)):
            if count == 2:
                raise KeyboardInterrupt
            yield result

    monkeypatch.setattr(cli, "results", interrupted)
    path = tmp_path / "report.json"
    assert cli.main([RIGHT, "--only=values", "--dtypes=float32", f"--json={path}"]) == 130
    read = json.loads(path.read_text())
    assert read["interrupted"] and len(read["results"]) == 2 and not read["passed"]
    assert "INTERRUPTED" in capsys.readouterr().out


def test_interrupt_before_the_first_result_keeps_the_earlier_report(tmp_path, monkeypatch):
    def interrupted(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "results", interrupted)
    (tmp_path / "report.json").write_text("earlier")
    arguments = ["--only=oracle", f"--json={tmp_path / 'report.json'}"]
    assert cli.main([RIGHT, *arguments]) == 130
    assert (tmp_path / "report.json").read_text() == "earlier"


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_an_unusable_path_is_noticed_before_the_work(option, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "results", lambda *_, **__: pytest.fail("it works already"))
    paths = {tmp_path: "is a folder", tmp_path / "none" / "x.json": "there is no folder"}
    for path, message in paths.items():
        assert cli.main([RIGHT, "--only=oracle", option, str(path)]) == 2
        found = capsys.readouterr().err
        assert message in found and len(found.splitlines()) == 1


def test_a_folder_named_report_is_in_nobodys_way(tmp_path, monkeypatch):
    (tmp_path / "report").mkdir()
    monkeypatch.chdir(tmp_path)
    cli.check_files(cli.parser().parse_args(["a:b", "--html", "report.html"]))


def test_keywords_are_passed_on(capsys):
    arguments = ["--with=scale=1.0", "--only=oracle", "--dtypes=float32"]
    assert cli.main([RIGHT, *arguments]) == 1
    assert cli.main([RIGHT, "--with=scale=0.5", "--only=oracle", "--dtypes=float32"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no_colon"],
        ["no.such.module:f"],
        ["math:nothing"],
        [RIGHT, "--only=typo"],
        [RIGHT, "--with=3"],
        [RIGHT, "--only=oracle", "--dtypes=foo"],
        [RIGHT, "--only=oracle", "--dtypes="],
        ["jaxattn.verify:__doc__", "--only=oracle"],
    ],
)
def test_wrong_usage_is_status_two(arguments, capsys):
    assert cli.main(arguments) == 2
    found = capsys.readouterr().err
    assert found.startswith("jaxattn verify:") and len(found.splitlines()) == 1


def test_list_names_every_check(capsys):
    assert cli.main(["--list"]) == 0
    assert "noether_lse" in capsys.readouterr().out


@pytest.mark.slow
def test_jax_nn_has_three_causes_in_full(tmp_path, capsys):
    """Padding and empty rows in both dtypes; all else in float64 is its softmax in float32."""
    path = tmp_path / "report.json"
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):  # as users have it
        assert cli.main(["jax.nn:dot_product_attention", f"--json={path}"]) == 1
    read = json.loads(path.read_text())
    failed = [r for r in read["results"] if r["status"] == "fail"]
    narrow = {r["check"] for r in failed if r["dtype"] == "float32"}
    inside = [r for r in failed if "float32 inside" in r["cause"]]
    besides = {r["check"] for r in failed if r["dtype"] == "float64" and r not in inside}
    assert narrow == {"padding_poison", "query_poison", "empty_rows"}
    assert besides == narrow | {"third_order_poison"}
    assert len(inside) > 30 and len({r["cause"] for r in failed}) == 3
    assert "(3 causes)" in capsys.readouterr().out


def test_jax_nn_fails_on_empty_rows_and_padding_alone(capsys):
    """In float32, among the checks that it claims; the full run is an experiment."""
    families = "values,structure,padding,empty,noether,symmetries"
    code = cli.main(
        ["jax.nn:dot_product_attention", "--quick", f"--only={families}", "--dtypes=float32"]
    )
    out = capsys.readouterr().out
    failed = {line.split("FAIL")[0].split()[-1] for line in out.splitlines() if " FAIL " in line}
    assert code == 1
    assert failed == {"padding_poison", "query_poison", "empty_rows"}
