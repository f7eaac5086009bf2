#!/bin/sh
# Checks the lane protocol's model exhaustively, and that the check rejects each broken variant.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

check() { # name, expected errors (0 or "some"), defines
    name=$1 expected=$2
    shift 2
    spin -a "$@" "$folder/lane.pml" >/dev/null
    cc -O2 -w -DCOLLAPSE -DSAFETY -o pan pan.c
    ./pan -m200000 -w24 >result 2>&1 || true
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' result)
    states=$(awk '/states, stored/ {print $1}' result)
    if grep -q 'Search not completed\|max search depth too small' result && [ "$expected" = 0 ]; then
        echo "$name: the search was not exhaustive"; cat result; exit 1
    fi
    case "$expected:$errors" in
        0:0) echo "$name: holds in all $states states" ;;
        some:0) echo "$name: NOT rejected, so the check proves nothing"; exit 1 ;;
        some:*) echo "$name: rejected, as it must be: $(grep -m1 'pan:1:' result | cut -c1-100)" ;;
        *) echo "$name: does not hold"; cat result; exit 1 ;;
    esac
}

check 'late commits' 0
check 'late commits and a failed attempt' 0 -DFAILS=1
check 'late commits and a killed relay' 0 -DCRASHES=1
check 'late commits and a lease that lapses under a live relay' 0 -DLAPSES=1
check 'second statement in the first snapshot' some -DONE_SNAPSHOT
check "claim without the holder's lock" some -DNO_HOLDER_LOCK
check 'holder that has stopped running' some -DSTALE_HOLDER -DFAILS=1
check 'settle without the fence' some -DNO_FENCE -DLAPSES=1
