"""The process manager of the inference host: the only module that knows Supervisor.

Service and agent are children of the process manager, never of a Prefect run. Flows ask it through its control socket.
"""

from __future__ import annotations

import os
import time
import xmlrpc.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from data_contracts.errors import Problem, ServiceManagerError

SOCKET_VARIABLE = "PASSLINE_SUPERVISOR_SOCKET"
SERVICE = "service"
AGENT = "agent"
POLL_S = 0.1
NO_WAIT = False  # the `wait` argument of startProcess and stopProcess; XML-RPC knows no names
UNKNOWN_PROGRAM = 10  # supervisor.xmlrpc.Faults.BAD_NAME
ALREADY_STARTED = 60  # supervisor.xmlrpc.Faults.ALREADY_STARTED
NOT_RUNNING = 70  # supervisor.xmlrpc.Faults.NOT_RUNNING


@dataclass(frozen=True)
class ProcessState:
    """One program as the process manager sees it. `state` is Supervisor's word: RUNNING, STOPPED, FATAL, ..."""

    name: str
    state: str
    pid: int
    detail: str

    @property
    def running(self) -> bool:
        """Whether the program is up."""
        return self.state == "RUNNING"


class ServiceManager:
    """Supervisor, through its control socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> ServiceManager:
        """The manager whose control socket PASSLINE_SUPERVISOR_SOCKET names."""
        env = os.environ if environ is None else environ
        if SOCKET_VARIABLE not in env:
            raise ServiceManagerError(
                Problem(
                    SOCKET_VARIABLE, "the path of Supervisor's control socket", "nothing", "Set it for this worker."
                )
            )
        return cls(Path(env[SOCKET_VARIABLE]))

    def state(self, name: str) -> ProcessState:
        """What `name` does now."""
        info = self._call(lambda rpc: rpc.getProcessInfo(name), f"program {name}")
        return ProcessState(name, info["statename"], info["pid"], info["description"] or info["spawnerr"])

    def states(self) -> tuple[ProcessState, ...]:
        """All programs."""
        infos = self._call(lambda rpc: rpc.getAllProcessInfo(), "programs")
        return tuple(
            ProcessState(i["name"], i["statename"], i["pid"], i["description"] or i["spawnerr"]) for i in infos
        )

    def start(self, name: str) -> None:
        """Start `name`; nothing happens when it runs."""
        self._call(lambda rpc: rpc.startProcess(name, NO_WAIT), f"start of {name}", harmless=ALREADY_STARTED)

    def stop(self, name: str, timeout_s: float) -> None:
        """Ask `name` to finish what it has in flight and end; wait until it has."""
        self._call(lambda rpc: rpc.stopProcess(name, NO_WAIT), f"stop of {name}", harmless=NOT_RUNNING)
        deadline = time.monotonic() + timeout_s
        while self.state(name).state not in ("STOPPED", "EXITED", "FATAL"):
            if time.monotonic() > deadline:
                raise ServiceManagerError(
                    Problem(f"program {name}", f"to stop within {timeout_s:g} s", "still running", "See its log.")
                )
            time.sleep(POLL_S)

    def shut_down(self) -> None:
        """End the manager and every program under it."""
        self._call(lambda rpc: rpc.shutdown(), "shutdown")

    def _call(self, ask: Callable[[Any], Any], subject: str, harmless: int | None = None) -> Any:
        from supervisor.xmlrpc import SupervisorTransport

        # Supervisor's transport takes the host from its own argument; the URL is only there to satisfy the client.
        transport = SupervisorTransport(serverurl=f"unix://{self._socket}")
        with xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport) as proxy:
            try:
                return ask(proxy.supervisor)
            except xmlrpc.client.Fault as fault:
                if fault.faultCode == harmless:
                    return None
                hint = "There is no such program." if fault.faultCode == UNKNOWN_PROGRAM else "See its log."
                raise ServiceManagerError(Problem(subject, "to be done", fault.faultString, hint)) from None
            except (OSError, HTTPException) as error:
                raise ServiceManagerError(
                    Problem(
                        f"process manager at {self._socket}",
                        "an answer",
                        str(error) or type(error).__name__,
                        "Start the local stack with `passline up` (on a host: the service manager's unit).",
                    )
                ) from None
