"""No API of a service can take the path of a page."""

import pytest
from starlette.routing import Route

from uncork_gateway import Gateway, GatewaySettings
from uncork_workers.wire.values import DefinitionError, check_route


@pytest.mark.parametrize("admin", [False, True])
async def test_every_page_has_a_reserved_path(admin: bool) -> None:
    gateway = Gateway(GatewaySettings(admin=admin))
    pages = gateway.front_end.pages
    for routes in [pages.routes, pages.admin_routes][: 1 + admin]:
        paths = {route.path for route in routes if isinstance(route, Route)} - {"/"}
        assert "/readyz" in paths
        for path in paths:
            with pytest.raises(DefinitionError):
                check_route("predict", path.replace("{", "").replace("}", ""))
    await gateway.close()
