"""`python -m jaxattn COMMAND`: verify a function, explain a call, time ours and others."""

import sys

USAGE = """usage: python -m jaxattn COMMAND [ARGUMENTS]

  verify MODULE:FUNCTION   judge an attention function by its derivatives, and say what is wrong
  explain --length T       say which implementation would run, and what it would cost
  bench                    time attention, ours beside jax.nn, Flax, an einsum and PyTorch

python -m jaxattn COMMAND --help tells more.
"""


def main(arguments: list[str]) -> int:
    """Run one command; its modules are loaded when it is asked for."""
    if arguments[:1] == ["verify"]:
        from jaxattn.verify import cli

        return cli.main(arguments[1:])
    if arguments[:1] == ["explain"]:
        from jaxattn import _explain_cli

        return _explain_cli.main(arguments[1:])
    if arguments[:1] == ["bench"]:
        from jaxattn.bench import cli as bench

        return bench.main(arguments[1:])
    asked = arguments[:1] in ([], ["-h"], ["--help"])
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
