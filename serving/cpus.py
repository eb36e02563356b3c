"""How many CPUs this process may really use: affinity and the quota of its control group, not the host's cores."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def threads_from_quota(
    workers: int, *, cpus: int | None = None, cgroup_root: Path = CGROUP_ROOT, own_cgroups: Path = OWN_CGROUPS
) -> int:
    """Engine threads for one of `workers` processes that share this machine's or container's CPUs; at least 1.

    `cpus` are the CPUs that the process may run on (its affinity by default). A quota of 4 CPUs with 2 workers gives 2,
    whatever the host has. Part of a CPU does not count: an engine thread that is throttled holds up all others.
    """
    allowed = float(len(os.sched_getaffinity(0)) if cpus is None else cpus)
    quota = cpu_quota(cgroup_root, own_cgroups)
    return max(1, int(min(allowed, quota or allowed) // workers))


def cpu_quota(cgroup_root: Path = CGROUP_ROOT, own_cgroups: Path = OWN_CGROUPS) -> float | None:
    """CPUs per period that the control group and its parents grant, version 2 or 1; None without a limit."""
    groups = _own_groups(own_cgroups)
    quotas = [_quota_v2(folder) for folder in _upwards(cgroup_root, groups.get("", ""))]
    quotas += [_quota_v1(folder) for folder in _upwards(cgroup_root / "cpu", groups.get("cpu", ""))]
    return min((quota for quota in quotas if quota is not None), default=None)


def _own_groups(own_cgroups: Path) -> dict[str, str]:
    """Controller to group, from lines such as `0::/a/b` (version 2) and `4:cpu,cpuacct:/a/b` (version 1)."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:  # not Linux, or /proc is hidden: then only the affinity counts
        return {}
    fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return {controller: path for _, controllers, path in fields for controller in controllers.split(",")}


def _upwards(root: Path, group: str) -> list[Path]:
    """The group's folder and those of its parents, up to the root. A parent's limit holds for its children too."""
    names = [name for name in group.split("/") if name not in ("", "..")]
    return [root.joinpath(*names[:count]) for count in range(len(names), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    return _cpus(quota, period)


def _quota_v1(folder: Path) -> float | None:
    return _cpus(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _cpus(quota: str, period: str) -> float | None:
    """`max` (version 2), -1 (version 1) and an absent file mean that there is no limit."""
    if not quota.isdigit() or not period.isdigit() or int(quota) == 0 or int(period) == 0:
        return None
    return int(quota) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
