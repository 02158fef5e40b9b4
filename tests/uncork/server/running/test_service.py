"""What a service of a server needs while it runs, and leaves behind."""

import asyncio
from pathlib import Path

from tests.gateway.running import turns
from tests.uncork.server.running.stopped import stopped
from tests.workers.supervision.test_far_launcher import FarLauncher
from uncork.server.options import ServeOptions
from uncork.server.running.service import RunningService, _scaling
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_workers.supervision.supervisor import Supervisor


async def test_a_service_that_ends_leaves_no_folder(tmp_path: Path) -> None:
    """Clients may load and unload services for as long as the server runs."""
    options = ServeOptions(target=["a.py:Digits"], state=False)
    server = stopped(options, tmp_path)
    service = await RunningService.open("digits", options, server)
    assert names_in(tmp_path) == ["0"]
    await server.gateway.remove(service.served)
    await service.close()
    assert not names_in(tmp_path)
    server.gateway.front_end.close()


async def test_sizes_that_wait_for_each_other_leave_no_worker_expected() -> None:
    """A reload lowers the bounds while more workers are about to start, both after a recycled one."""
    launcher, gateway = FarLauncher(), Gateway(GatewaySettings())
    supervisor = Supervisor(launcher, workers=2, on_exit=lambda end: None, take_over=lambda launches: ())
    actions = SupervisorActions(kill=supervisor.kill, restarts=lambda: supervisor.restarts)
    served = gateway.add(GatewaySettings(), actions)
    scaling = _scaling(served, supervisor, ServeOptions(workers="2"))
    supervisor.start()
    recycled, _ = await launcher.launched.get(), await launcher.launched.get()
    recycling = asyncio.create_task(supervisor.replace(recycled))
    standby = await launcher.launched.get()
    resizing = [asyncio.create_task(scaling.change_bounds(count, count)) for count in (3, 1)]
    await turns()
    supervisor.mark_ready(standby.launch)
    await asyncio.gather(recycling, *resizing)

    dispatcher = served.batching.dispatcher
    dispatcher.worker_ready(-1, place=2)
    assert (supervisor.workers, dispatcher.startup_s) == (1, None)
    await supervisor.stop(grace_s=0)
    await gateway.close()


def names_in(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]
