"""A kubelet's part: a pod's files, its variables and its commands, on this machine."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relay.config import Settings, load
from tests.chart.helm import ROOT, Manifest
from tests.chart.pod import Spec, containers, one, specs

MOUNT, CONFIG = "/run/relay", "/etc/relay"


@dataclass(frozen=True)
class Pod:
    """A pod whose files lie below a folder in place of the root; `content` is what its Secrets hold, by their names."""

    spec: Spec
    config: Path
    content: Mapping[str, str]

    def environment(self, container: Spec) -> dict[str, str]:
        """The variables of a container."""
        found = {each["name"]: each.get("value") or self._referred(each) for each in container["env"]}
        assert found["RELAY_CONFIG"] == f"{CONFIG}/relay.yaml"
        return found | {"RELAY_CONFIG": str(self.config)}

    def _referred(self, variable: Spec) -> str:
        return self.content[variable["valueFrom"]["secretKeyRef"]["name"]]

    def argv(self, container: Spec) -> list[str]:
        """What the image starts with the container's arguments."""
        return [sys.executable, "-m", "relay", *container["args"]]

    def settings(self) -> Settings:
        """What the relay makes of it."""
        return load(environ=self.environment(self.spec["containers"][0]))

    async def run(self) -> None:
        """Run its containers to their ends, one after the other; fails with the words of one that fails."""
        for container in containers(self.spec):
            process = await asyncio.create_subprocess_exec(
                *self.argv(container),
                env=self.environment(container) | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            said, _ = await process.communicate()
            assert process.returncode == 0, said.decode()


def lay_out(rendered: list[Manifest], owner: str, root: Path, content: Mapping[str, str]) -> Pod:
    """Lay out the files of the pod of `owner`, as in "Job relay-setup". A Secret without content holds a text."""
    spec = specs(rendered)[owner]
    for volume in spec["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            [reference] = source.values()
            for item in reference["items"]:
                file = root / MOUNT[1:] / item["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content.get(reference["name"], "text") + "\n")
    name = next(volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == "config")
    config = root / CONFIG[1:] / "relay.yaml"
    config.parent.mkdir(parents=True)
    [text] = one(rendered, "ConfigMap", name)["data"].values()
    config.write_text(text.replace(MOUNT, f"{root}{MOUNT}"))
    return Pod(spec, config, content)
