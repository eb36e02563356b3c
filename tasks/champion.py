"""Step: today's champion, to be measured on the same pictures as the candidate."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger, task

from serving.bundle import open_bundle
from tasks.registry import Registry


@task(name="fetch the champion", retries=2, retry_delay_seconds=5)
def fetch_champion(mlflow_url: str, name: str, target: Path) -> Path | None:
    """The champion's verified bundle below `target`, None where there is no champion yet."""
    registry = Registry(mlflow_url)
    champion = registry.champion(name)
    if champion is None:
        get_run_logger().info("%s has no champion yet", name)
        return None
    bundle = open_bundle(registry.download_bundle(champion, target), champion.digest)
    get_run_logger().info("champion of %s: version %d, bundle %s", name, champion.number, champion.digest[:12])
    return bundle.path
