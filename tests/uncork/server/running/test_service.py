"""What a service of a server needs while it runs, and leaves behind."""

import asyncio
from pathlib import Path

from uncork.server.options import ServeOptions
from uncork.server.running.service import Place, RunningService
from uncork.server.services import service_settings
from uncork_gateway import Gateway, GatewaySettings


async def test_a_service_that_ends_leaves_no_folder(tmp_path: Path) -> None:
    """Clients may load and unload services for as long as the server runs."""
    gateway = Gateway(GatewaySettings())
    place = Place(
        gateway=gateway,
        admin_url="",
        folder=tmp_path,
        settings=lambda own, keys: GatewaySettings(**service_settings(own)),
        keys=lambda: None,
        failed=asyncio.get_running_loop().create_future(),
    )
    service = await RunningService.open("digits", ServeOptions(target=["a.py:Digits"], state=False), place)
    assert names_in(tmp_path) == ["0"]
    await gateway.remove(service.served)
    await service.close()
    assert not names_in(tmp_path)
    gateway.front_end.close()


def names_in(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]
