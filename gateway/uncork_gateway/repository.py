"""Loading and unloading of services at the request of clients, as Triton's model repository has it."""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from uncork_gateway.errors import BadRequest, GatewayError

_ACCESS = (
    "clients may load and unload services only with an API key (--api-key-file), or on the admin port "
    "(--admin-port)"
)
_NO_REPOSITORY = "the services of this server cannot be loaded or unloaded"
# Services depend on no others.
_WITHOUT_EFFECT = "unload_dependents"


class NotLoaded(GatewayError):
    """A service could not be loaded or unloaded; the message says why. Nothing has changed.

    Clients of Triton look for "failed to load" in messages.
    """

    status = 400


class NotAllowed(GatewayError):
    """This client may not load or unload services."""

    status = 403


class Repository(Protocol):
    """The services that can be loaded."""

    def unloaded(self) -> Collection[str]:
        """Return the names of those that are not loaded."""

    async def load(self, name: str) -> None:
        """Start a service with its present configuration; if it is loaded already, replace its workers.

        Raises:
            NotLoaded: if that is impossible; nothing has changed then.
        """

    async def unload(self, name: str) -> None:
        """Answer what a service has accepted, and stop it.

        Raises:
            NotLoaded: if there is no such service.
        """


class NoRepository:
    """Stands for a repository where there is none."""

    def unloaded(self) -> Collection[str]:
        return ()

    async def load(self, name: str) -> None:
        raise NotLoaded(f"failed to load {name!r}: {_NO_REPOSITORY}")

    async def unload(self, name: str) -> None:
        raise NotLoaded(f"failed to unload {name!r}: {_NO_REPOSITORY}")


class RepositoryAccess:
    """The repository, for some clients.

    Args:
        repository: returns it; it may be replaced at any time.
        is_allowed: returns whether they may load and unload.
    """

    def __init__(self, repository: Callable[[], Repository], *, is_allowed: Callable[[], bool]) -> None:
        self._repository = repository
        self._is_allowed = is_allowed

    def unloaded(self) -> Collection[str]:
        """Return the names of the services that are not loaded."""
        return self._repository().unloaded()

    async def load(self, name: str, parameters: Iterable[str] = ()) -> None:
        """Load a service.

        Args:
            name: of the service.
            parameters: the names of the request's parameters.

        Raises:
            NotAllowed: if they may not.
            BadRequest: if a parameter has a meaning that would be ignored.
            NotLoaded: see :meth:`Repository.load`.
        """
        self._check("load", name, parameters)
        await self._repository().load(name)

    async def unload(self, name: str, parameters: Iterable[str] = ()) -> None:
        """Unload a service; raises as :meth:`load`."""
        self._check("unload", name, parameters)
        await self._repository().unload(name)

    def _check(self, change: str, name: str, parameters: Iterable[str]) -> None:
        if not self._is_allowed():
            raise NotAllowed(_ACCESS)
        if unknown := [each for each in parameters if each != _WITHOUT_EFFECT]:
            raise BadRequest(
                f"failed to {change} {name!r}: the parameter {unknown[0]!r} is not supported; services are "
                "loaded as they are configured"
            )
