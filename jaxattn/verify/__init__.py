"""Judge anybody's attention: `check_all(f)` proves `f(query, key, value, mask=mask)` or breaks it.

Imports jax and numpy only, and nothing of the rest of jaxattn: copy the folder and it works.

    check_all          every check on one function -> Report
    attention_checks   the checks one by one; parametrize_with_attention_checks for pytest
    adapters, modules  one-line adapters for the usual signatures, layers and kernels
    MUTANTS            broken attentions, each caught by a check
    CHECKS             the table of checks
    problem            the inputs that checks are run on
    dense_attention    the yardstick, in plain JAX
"""

from . import adapters as adapters
from . import modules as modules
from .check import Check as Check
from .compare import Measurement as Measurement
from .dense import dense_attention as dense_attention
from .door import attention_checks as attention_checks
from .door import check_all as check_all
from .door import parametrize_with_attention_checks as parametrize_with_attention_checks
from .execute import Result as Result
from .features import OPTIONAL as OPTIONAL
from .features import ORDINARY as ORDINARY
from .mutants import MUTANTS as MUTANTS
from .problem import Problem as Problem
from .problem import Shape as Shape
from .problem import problem as problem
from .report import AttentionError as AttentionError
from .report import Report as Report
from .table import CHECKS as CHECKS
