"""The launcher of workers on a Ray cluster, with a helper that the test plays."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.ray.stage import LAUNCH_SECRET, Helper, stage
from tests.workers.supervision.crowd import replace_all
from uncork_workers.ray.code_shipping import Packer
from uncork_workers.ray.launcher import RayWorkers
from uncork_workers.ray.messages import Attach, Ended, Kill, Launch, RayUnusable, Refused, Started, Waiting
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor
from uncork_workers.wire.handshake import launch_token

NEEDS = {"CPU": 1.0, "GPU": 0.0}


async def launch_of(helper: Helper) -> Launch:
    command = await helper.command()
    assert isinstance(command, Launch)
    return command


async def test_a_worker_is_started_and_its_end_reported(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        helper = await on.started()
        worker = await on.launcher.launch(3, standby=True)
        command = await launch_of(helper)
        helper.send(Started(worker.launch, "node-1"))
        helper.send(Ended(worker.launch, code=-9))

        assert command.arguments[:4] == ["svc.py:Svc", "--gateway", "10.0.0.1:7000", "--standby"]
        assert command.arguments[4:] == ["--index", "3", "--launch", "1", "--log-level", "info"]
        token = launch_token(LAUNCH_SECRET, worker.launch)
        assert command.environment == {"UNCORK_WORKER_TOKEN": token.decode(), "CUDA_VISIBLE_DEVICES": ""}
        assert command.needs == NEEDS
        assert command.code is None
        assert await worker.ended == "was killed by SIGKILL"
        assert on.launcher.running == {}


async def test_each_launch_ships_the_present_code(tmp_path: Path) -> None:
    code, archives = tmp_path / "code", tmp_path / "archives"
    code.mkdir()
    archives.mkdir()
    (code / "svc.py").write_text("1")
    async with stage(tmp_path, packer=Packer(code, archives)) as on:
        helper = await on.started()
        sent = []
        for text in ("1", "22"):
            (code / "svc.py").write_text(text)
            await on.launcher.launch(0)
            code_sent = (await launch_of(helper)).code
            assert code_sent is not None
            sent.append(code_sent)

        assert sent[0].digest != sent[1].digest
        assert {one.name for one in archives.iterdir()} >= {f"{one.digest}.zip" for one in sent}


async def test_a_worker_that_ray_cannot_place_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It can be killed meanwhile, without an answer from Ray."""
    async with stage(tmp_path) as on:
        helper = await on.started()
        workers = [await on.launcher.launch(index) for index in (0, 1)]
        _ = [await helper.command() for _ in workers]
        helper.send(Waiting([1, 2], "no room"))
        await on.until_waiting([0, 1], "no room")
        helper.send(Waiting([2], "no room"))
        await on.until_waiting([1], "no room")
        on.launcher.kill(2)

        assert workers[1].ended.result() == "was killed"
        assert await helper.command() == Kill(2)
        helper.send(Waiting([]))
        await on.until_waiting([], "")
        assert not workers[0].ended.done()
        on.launcher.kill(2)  # does nothing
        assert [one.message for one in caplog.records] == ["2 workers are waiting for Ray: no room"]


async def test_workers_that_do_not_wait_any_more_are_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ray has placed them, or they were killed, while the helper asked for the reason."""
    async with stage(tmp_path) as on:
        helper = await on.started()
        killed = await on.launcher.launch(0)
        on.launcher.kill(killed.launch)
        helper.send(Waiting([], "no room"))
        helper.send(Waiting([killed.launch], "no room"))
        waits = await on.launcher.launch(1)
        helper.send(Waiting([killed.launch, waits.launch], "no room at all"))
        await on.until_waiting([1], "no room at all")

        assert {reason for _, reason in on.waiting} == {"", "no room at all"}
        assert [one.message for one in caplog.records] == ["1 worker is waiting for Ray: no room at all"]


async def test_a_reload_without_room_fails(tmp_path: Path) -> None:
    """With the reason. A worker that has started may take longer, and one that replaces no other may wait."""
    async with stage(tmp_path, room_s=1.0) as on:
        helper = await on.started()
        supervisor = Supervisor(
            on.launcher, workers=2, on_exit=lambda left: None, take_over=lambda launches: ()
        )
        supervisor.start()
        for _ in range(2):
            await helper.command()
        reloading = asyncio.create_task(replace_all(supervisor))
        for _ in range(2):
            await helper.command()
        helper.send(Started(3, "node-1"))
        helper.send(Waiting([4], "each needs 1 CPU"))
        with pytest.raises(
            ReplacementFailed, match=r"^new worker 1 was not started within 1 s: each needs 1 CPU$"
        ):
            await reloading

        assert sorted(on.launcher.running) == [1, 2]
        assert {await helper.command(), await helper.command()} == {Kill(3), Kill(4)}
        await supervisor.stop(grace_s=0.0)


async def test_the_next_helper_attaches_to_what_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether or not the worker had started; what it did not find has ended."""
    caplog.set_level(logging.INFO)
    async with stage(tmp_path) as on:
        helper = await on.started()
        workers = [await on.launcher.launch(index) for index in (0, 1)]
        _ = [await helper.command() for _ in workers]
        helper.send(Started(1, "node-1"))
        helper.die()
        helper = await on.connected()
        commands = [await helper.command(), await helper.command()]
        helper.send(Ended(2, reason="was lost"))

        assert commands == [Attach(1, NEEDS), Attach(2, NEEDS)]
        assert await workers[1].ended == "was lost"
        assert not workers[0].ended.done()
        reason = "the helper process for Ray exited with code 7 (last words)"
        assert ([1], reason) in on.waiting
        assert [one.message for one in caplog.records] == [
            f"{reason}; trying again",
            "connected to Ray again",
        ]


async def test_commands_without_a_helper_reach_the_next_one(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        helper = await on.started()
        first = await on.launcher.launch(0)
        await helper.command()
        helper.send(Started(1, "node-1"))
        helper.die()
        await on.until_waiting([], "the helper process for Ray exited with code 7 (last words)")
        on.launcher.kill(1)
        second = await on.launcher.launch(0)
        third = await on.launcher.launch(1)
        on.launcher.kill(third.launch)
        helper = await on.connected()
        commands = [await helper.command(), await helper.command()]
        fourth = await on.launcher.launch(2)
        commands.append(await helper.command())

        assert first.ended.result() == third.ended.result() == "was killed"
        assert on.waiting[-1] == ([], "")
        assert commands[0] == Kill(1)
        assert [one.launch for one in commands if isinstance(one, Launch)] == [second.launch, fourth.launch]


async def test_a_kill_that_a_dying_helper_missed_is_repeated(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        helper = await on.started()
        await on.launcher.launch(0)
        on.launcher.kill(1)
        helper.die()
        helper = await on.connected()
        assert await helper.command() == Kill(1)
        helper.send(Ended(1, reason="was killed"))
        worker = await on.launcher.launch(0)
        await helper.command()
        helper.send(Ended(worker.launch, code=0))
        await worker.ended
        helper.die()
        helper = await on.connected()
        await on.launcher.launch(0)
        await launch_of(helper)


async def test_losing_the_cluster_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with stage(tmp_path) as on:
        (await on.started()).die()
        for _ in range(2):
            (await on.helper()).send(Refused("no head there"))
        worker = await on.launcher.launch(0)
        helper = await on.connected()
        await launch_of(helper)

        assert ([0], "no head there") in on.waiting
        assert not worker.ended.done()
        assert [one.message for one in caplog.records][1:] == [
            "no head there; trying again",
            "connected to Ray again",
        ]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda helper: helper.die(), r"exited with code 7 while .* \(ray start .* \(last words\)$"),
        (lambda helper: helper.say("Hello\n"), r"printed b'Hello\\n'"),
        (lambda helper: helper.send(Refused("no head there")), r"^no head there$"),
    ],
    ids=["dies", "babbles", "refuses"],
)
async def test_a_helper_that_does_not_connect_is_an_error_at_the_start(
    tmp_path: Path, act: Callable[[Helper], None], says: str
) -> None:
    async with stage(tmp_path) as on:
        starting = asyncio.create_task(on.launcher.start())
        act(await on.helper())
        with pytest.raises(RayUnusable, match=says):
            await starting


async def test_a_helper_that_cannot_be_started_is_an_error_at_the_start(tmp_path: Path) -> None:
    async with stage(tmp_path, command=(str(tmp_path / "missing"),)) as on:
        with pytest.raises(RayUnusable, match="cannot be started"):
            await on.launcher.start()


async def test_closing_ends_the_helper_and_all_workers(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        helper = await on.started()
        worker = await on.launcher.launch(0)
        await helper.command()
        await on.launcher.close()

        assert await worker.ended == "was killed"
        assert await helper.command() is None


async def test_an_unreachable_gateway_is_explained(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        helper = await on.started()
        worker = await on.launcher.launch(0)
        helper.send(Ended(1, code=3))

        assert await worker.ended == (
            "exited with code 3: it cannot reach the gateway at 10.0.0.1:7000; give an address that the "
            "nodes can reach with --worker-address"
        )


def test_the_gateway_does_not_import_ray() -> None:
    """It would end the process, with all connections of clients, when the cluster's head is lost."""
    code = (
        "import sys, uncork.server.workers.ray_placement; print('uncork_workers.ray.cluster' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


async def test_workers_of_another_size_are_started_beside_the_old(tmp_path: Path) -> None:
    """A new helper reserves for each what it was started with."""
    async with stage(tmp_path) as on:
        helper = await on.started()
        await on.launcher.launch(0)
        larger = RayWorkers(
            address="head:6379", target="svc.py:Svc", cpus=4.0, gpus=0.5, arguments=("--log-level", "debug")
        )
        await on.launcher.starter(larger)(0, standby=True)
        old, new = await launch_of(helper), await launch_of(helper)
        assert (old.needs, new.needs) == (NEEDS, {"CPU": 4.0, "GPU": 0.5})
        assert new.arguments[-2:] == ["--log-level", "debug"]
        assert "CUDA_VISIBLE_DEVICES" not in new.environment
        helper.die()
        helper = await on.connected()
        commands = [await helper.command(), await helper.command()]
        assert commands == [Attach(1, NEEDS), Attach(2, larger.needs)]
