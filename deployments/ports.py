"""Ports of the local stack: free, or taken by whom."""

from __future__ import annotations

import socket

import psutil

from data_contracts.errors import Problem
from deployments.environment import LOOPBACK


def port_problem(name: str, port: int) -> Problem | None:
    """What is in the way of listening on `port`, None when nothing is. PASSLINE_<NAME>_PORT chooses another one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return Problem(
                f"port {port} for {name.lower()}",
                "free",
                f"taken by {_owner(port)}",
                f"Stop that process, or choose another port with PASSLINE_{name}_PORT.",
            )
    return None


def _owner(port: int) -> str:
    try:
        for found in psutil.net_connections("tcp"):
            if found.laddr and found.laddr.port == port and found.status == psutil.CONN_LISTEN and found.pid:
                return f"{psutil.Process(found.pid).name()} (pid {found.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return "a process of another user"
    return "another process"
