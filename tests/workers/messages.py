"""Hypothesis strategies for messages, made from the types of their fields. Numbers are finite."""

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from tests.workers.json_values import SCALARS

_SMALL_SCALARS = SCALARS.filter(lambda value: not isinstance(value, int) or -(2**63) <= value < 2**64)


def any_of(*kinds: Any) -> st.SearchStrategy[Any]:
    return st.one_of(*map(_values, inspect.multi_type_info(kinds)))


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: _values(field.type) for field in fields})
        case inspect.UnionType(types=kinds):
            return st.one_of(*map(_values, kinds))
        case inspect.ListType(item_type=item):
            return st.lists(_values(item), max_size=3)
        case inspect.VarTupleType(item_type=item):
            return st.lists(_values(item), max_size=3).map(tuple)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(_values, items))
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key), _values(value), max_size=2)
        case _:
            return _scalars(kind)


def _scalars(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.IntType(ge=least, le=most):
            return st.integers(0 if least is None else least, 2**63 - 1 if most is None else most)
        case inspect.FloatType(gt=above, ge=least, le=most):
            low = above if least is None else least
            return st.floats(low, most, exclude_min=above is not None, allow_nan=False, allow_infinity=False)
        case inspect.StrType(pattern=str(pattern), max_length=most):
            return st.from_regex(pattern).filter(lambda text: most is None or len(text) <= most)
        case inspect.StrType(min_length=least, max_length=most):
            return st.text(min_size=least or 0, max_size=most or 9)
        case inspect.BytesType(min_length=least, max_length=most):
            return st.binary(min_size=least or 0, max_size=most or 9)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType():
            return _SMALL_SCALARS
    raise TypeError(kind)
