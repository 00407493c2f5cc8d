"""A thread of the daemon that an unforeseen error ended is started again."""

import threading

import pytest
from flow_home import until

from agent import clock
from agent.daemon import restarting_thread
from agent.daemon.broker_client import BrokerClient
from agent.daemon.restarting_thread import RestartingThread
from agent.daemon.supervisor import Supervisor

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def test_one_that_died_is_announced_once_and_started_again_later():
    runs, died, hold = [], [], threading.Event()

    def work():
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("a fault of a library")
        hold.wait(30)

    with clock.use(clock.FakeClock()) as time:
        thread = RestartingThread("kept", work, died.append)
        thread.restart_if_due()
        assert runs == []
        thread.start()
        thread.join(30)
        thread.restart_if_due()
        thread.restart_if_due()
        assert died == [restarting_thread.AGAIN_SECONDS]
        assert len(runs) == 1
        time.move(restarting_thread.AGAIN_SECONDS)
        thread.restart_if_due()
        until(lambda: len(runs) == 2, "the second one")
        thread.restart_if_due()
        hold.set()
        thread.join(30)
        time.move(999)
        thread.restart_if_due()
        assert len(runs) == 2, "one that returned has done its work"
        assert len(died) == 1


class Broken:
    """A broker of somebody else whose library has a fault that no contract knows."""

    where = "broken://"

    def connect(self):
        raise ZeroDivisionError("a fault")

    def close(self):
        pass


def test_a_courier_that_died_leaves_the_daemon_polling_and_is_tried_again(place):
    with clock.use(clock.FakeClock()) as time:
        here = place(f"taskqueue: {{broker: '{__name__}:Broken'}}\n")
        here.row(1)
        here.settings.plugin_guard.pin([f"{__name__}:Broken"])
        courier = BrokerClient(here.settings, here.events)
        supervisor = Supervisor(here.wiring, courier=courier, starts=False)
        courier.start()
        courier.thread.join(30)
        for _ in range(3):
            supervisor.step()
        assert [said["error"] for said in here.named("broker_away")] == [
            "the courier was ended by an error that nobody foresaw; its trace is in the daemon's log"
        ]
        assert courier.connected is False
        assert supervisor.startable()
        time.move(restarting_thread.AGAIN_SECONDS)
        supervisor.step()
        courier.thread.join(30)
        time.move(restarting_thread.AGAIN_SECONDS)
        supervisor.step()
        assert len(here.named("broker_away")) == 2
