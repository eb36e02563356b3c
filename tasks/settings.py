"""Where things are for the training side: the only place that reads its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from data_contracts.base import Contract
from data_contracts.dataset import DatasetRef


class SiteSettings(Contract):
    """Locations of the training side. Serving has its own in `serving.settings`."""

    home: Path = Field(description="PASSLINE_HOME: state folder of this machine.")
    mlflow_url: str = Field(description="PASSLINE_MLFLOW_URL: tracking and registry server.")
    mlflow_public_url: str = Field(description="PASSLINE_MLFLOW_PUBLIC_URL: the same for people's browsers.")
    prefect_public_url: str = Field(description="PASSLINE_PREFECT_PUBLIC_URL: Prefect's pages for people's browsers.")
    channel: Path = Field(description="PASSLINE_CHANNEL: release channel folder, read by inference hosts.")

    @property
    def datasets(self) -> Path:
        """Dataset repositories made by `passline dataset add`."""
        return self.home / "datasets"

    def locate(self, ref: DatasetRef) -> DatasetRef:
        """`ref` with its repository as a path or URL; a bare name means a repository of `datasets`.

        >>> SiteSettings.model_construct(home=Path("/var/p")).locate(DatasetRef(repository="plates")).repository
        '/var/p/datasets/plates'
        """
        if any(mark in ref.repository for mark in "/\\@:"):
            return ref
        return ref.model_copy(update={"repository": str(self.datasets / ref.repository)})

    @property
    def pinned(self) -> Path:
        """Verified, read-only working copies, one per dataset hash."""
        return self.home / "pinned"

    @property
    def runs(self) -> Path:
        """Working folders, one per flow run."""
        return self.home / "runs"


def load_site_settings(environ: Mapping[str, str] | None = None) -> SiteSettings:
    """Settings from `environ` (the process environment by default)."""
    env = os.environ if environ is None else environ
    home = Path(env.get("PASSLINE_HOME", "var")).absolute()
    mlflow_url = env.get("PASSLINE_MLFLOW_URL", "http://127.0.0.1:5000")
    return SiteSettings(
        home=home,
        mlflow_url=mlflow_url,
        mlflow_public_url=env.get("PASSLINE_MLFLOW_PUBLIC_URL", mlflow_url),
        prefect_public_url=env.get("PASSLINE_PREFECT_PUBLIC_URL", "http://127.0.0.1:4200"),
        channel=Path(env.get("PASSLINE_CHANNEL", home / "channel")).absolute(),
    )
