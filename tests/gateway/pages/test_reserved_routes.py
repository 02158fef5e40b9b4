"""No API of a service can take the path of a page."""

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.auth import AllowOrigins, RefuseOtherSites, RequireKey
from uncork_workers.wire.values import DefinitionError, check_route


@pytest.mark.parametrize("admin", [False, True])
async def test_every_page_has_a_reserved_path(admin: bool) -> None:
    gateway = Gateway(GatewaySettings(admin=admin))
    for app in filter(None, (gateway.front_end.app, gateway.front_end.admin_app)):
        while isinstance(app, AllowOrigins | RequireKey | RefuseOtherSites):
            app = app.app
        assert isinstance(app, Starlette)
        paths = {route.path for route in app.routes if isinstance(route, Route)} - {"/"}
        assert "/readyz" in paths
        for path in paths:
            with pytest.raises(DefinitionError):
                check_route("predict", path.replace("{", "").replace("}", ""))
    await gateway.close()
