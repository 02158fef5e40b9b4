"""Lets clients load and unload services, as with Triton's model repository."""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from uncork_gateway.errors import BadRequest, GatewayError

_ACCESS = (
    "clients may load and unload services only with an API key (--api-key-file), on the admin port "
    "(--admin-port), or in an application that calls mount() with admin=True"
)
_NO_REPOSITORY = "the services of this server cannot be loaded or unloaded"
# Services depend on no others.
_WITHOUT_EFFECT = "unload_dependents"


class NotLoaded(GatewayError):
    """A service could not be loaded or unloaded; the message says why. Nothing has changed.

    Triton's clients look for "failed to load" in the message.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class NotAllowed(GatewayError):
    """The client may not load or unload services."""

    status = 403


class Repository(Protocol):
    """Loads and unloads services while the gateway runs."""

    def unloaded(self) -> Collection[str]:
        """Return the names of the services that are not loaded."""

    async def load(self, name: str) -> None:
        """Start a service with its current configuration; if it is loaded already, replace its workers.

        Raises:
            NotLoaded: if loading fails, or too many such changes wait; nothing has changed then.
        """

    async def unload(self, name: str) -> None:
        """Finish a service's accepted requests, and stop the service.

        Raises:
            NotLoaded: if the service does not exist, or too many such changes wait.
        """


class RepositoryAccess:
    """The repository for clients, some of which may not load or unload services.

    Args:
        repository: returns the repository, which may be replaced at any time; None if nothing can be loaded.
        is_allowed: returns True if the clients may load and unload services.
    """

    def __init__(
        self, repository: Callable[[], Repository | None], *, is_allowed: Callable[[], bool]
    ) -> None:
        self._repository = repository
        self._is_allowed = is_allowed

    def unloaded(self) -> Collection[str]:
        repository = self._repository()
        return () if repository is None else repository.unloaded()

    async def load(self, name: str, parameters: Iterable[str] = ()) -> None:
        """Load a service.

        Args:
            parameters: the names of the request's parameters.

        Raises:
            NotAllowed: if the clients may not load services.
            BadRequest: if a parameter is not supported.
            NotLoaded: see :meth:`Repository.load`.
        """
        await self._checked("load", name, parameters).load(name)

    async def unload(self, name: str, parameters: Iterable[str] = ()) -> None:
        """Unload a service; raises as :meth:`load`."""
        await self._checked("unload", name, parameters).unload(name)

    def _checked(self, change: str, name: str, parameters: Iterable[str]) -> Repository:
        if not self._is_allowed():
            raise NotAllowed(_ACCESS)
        if unknown := [each for each in parameters if each != _WITHOUT_EFFECT]:
            raise BadRequest(
                f"failed to {change} {name!r}: the parameter {unknown[0]!r} is not supported; services are "
                "loaded as they are configured"
            )
        repository = self._repository()
        if repository is None:
            raise NotLoaded(f"failed to {change} {name!r}: {_NO_REPOSITORY}")
        return repository
