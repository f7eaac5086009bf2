"""`relay`, with what it does from SIGUSR1 to its end recorded by CPU time in the file that BENCH_PROFILE names."""

import cProfile
import os
import signal
import time

from relay.cli import main

if __name__ == "__main__":
    profile = cProfile.Profile(time.process_time)
    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    try:
        main(prog_name="relay")
    finally:
        profile.disable()
        profile.dump_stats(os.environ["BENCH_PROFILE"])
