"""What one POST costs in CPU time: aiohttp's client beside the relay's own, and each beside itself on uvloop.

One process for each row, which warms up and then reads what the operating system counted (getrusage). Rows of one
number in flight are run in turn, three times, and the cheapest counts: what disturbs a process makes it dearer.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys

from tests.bench.bare import CLIENTS
from tests.bench.rig import ROOT, receiver

PAYLOAD_BYTES = 500
TURNS = 3
SIDES = [(client, loop) for client in CLIENTS for loop in ("asyncio", "uvloop")]


def _spent_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def _us_per_post(client: str, url: str, posts: int, in_flight: int) -> float:
    """µs of CPU time of this process for each of `posts`."""
    await CLIENTS[client](url, posts // 10, in_flight, bytes(PAYLOAD_BYTES))
    before_s = _spent_s()
    await CLIENTS[client](url, posts, in_flight, bytes(PAYLOAD_BYTES))
    return 1e6 * (_spent_s() - before_s) / posts


def _measure(client: str, loop: str, url: str, posts: int, in_flight: int) -> float:
    argv = [sys.executable, "-m", "tests.bench.transport", "--side", client, loop, url, str(posts), str(in_flight)]
    return float(subprocess.run(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True).stdout)


def _side(client: str, loop: str, url: str, posts: str, in_flight: str) -> None:
    coroutine = _us_per_post(client, url, int(posts), int(in_flight))
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415 - only this side needs it

        print(uvloop.run(coroutine))
    else:
        print(asyncio.run(coroutine))


def main() -> None:
    """Prints µs of CPU time a POST; the last line is JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        _side(*arguments.side)
        return
    ratios = {}
    with receiver(0) as url:
        for in_flight in (32, 128):
            turns = [{side: _measure(*side, url, arguments.posts, in_flight) for side in SIDES} for _ in range(TURNS)]
            best = {side: min(turn[side] for turn in turns) for side in SIDES}
            print(f"\n{in_flight} in flight{'µs a POST':>24}{'vs aiohttp':>12}")
            for (client, loop), us in best.items():
                ratio = best["aiohttp", loop] / us
                ratios[f"{client}, {loop}, {in_flight}"] = round(ratio, 2)
                print(f"  {client} on {loop:12}{us:16.0f}{ratio:11.2f}x")
    if arguments.json:
        print(json.dumps({"posts_per_cpu_s_vs_aiohttp": ratios}))


if __name__ == "__main__":
    main()
