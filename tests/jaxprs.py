"""Reading a jaxpr, with all the jaxprs inside it."""

import jax


def equations(jaxpr):
    """Every equation of a (closed) jaxpr, those of loops, branches and calls included."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                yield from equations(inner)


def count(jaxpr, primitive):
    """How many equations of this primitive there are."""
    return sum(equation.primitive.name == primitive for equation in equations(jaxpr))


def dots(jaxpr):
    """The matrix products."""
    return [equation for equation in equations(jaxpr) if equation.primitive.name == "dot_general"]


def _is_jaxpr(x):
    return hasattr(x, "eqns") or hasattr(getattr(x, "jaxpr", None), "eqns")
