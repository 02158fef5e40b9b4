"""What clients may change about the services that are loaded."""

import pytest

from uncork_gateway.errors import BadRequest
from uncork_gateway.repository import NotAllowed, NotLoaded, RepositoryAccess


def access(*, is_allowed: bool = True) -> RepositoryAccess:
    return RepositoryAccess(lambda: None, is_allowed=lambda: is_allowed)


async def test_errors_are_those_that_clients_of_triton_look_for() -> None:
    with pytest.raises(NotLoaded, match=r"^failed to load 'x': the services of this server cannot"):
        await access().load("x", ["unload_dependents"])
    with pytest.raises(NotLoaded, match=r"^failed to unload 'x': the services of this server cannot"):
        await access().unload("x")


async def test_parameters_that_would_be_ignored_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"^failed to load 'x': the parameter 'config' is not supported"):
        await access().load("x", ["config"])
    with pytest.raises(BadRequest, match=r"^failed to unload 'x': the parameter 'files' is not supported"):
        await access().unload("x", ["unload_dependents", "files"])


async def test_who_may_not_load_learns_nothing_else() -> None:
    with pytest.raises(NotAllowed):
        await access(is_allowed=False).load("x", ["config"])
