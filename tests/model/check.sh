#!/bin/sh
# Checks the lane protocol's model exhaustively, and that the check rejects each broken variant.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

check() { # name, what must be found (nothing, or the start of what pan says), defines
    name=$1 expected=$2
    shift 2
    spin -a "$@" "$folder/lane.pml" >/dev/null
    cc -O2 -w -DCOLLAPSE -DSAFETY -o pan pan.c
    ./pan -m200000 -w24 >result 2>&1 || true
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' result)
    found=$(sed -n 's/^pan:1: //p' result | cut -c1-100)
    states=$(awk '/states, stored/ {print $1}' result)
    if grep -q 'Search not completed\|max search depth too small' result && [ "$expected:$errors" = nothing:0 ]; then
        echo "$name: the search was not exhaustive"; cat result; exit 1
    fi
    case "$expected:$errors:$found" in
        nothing:0:) echo "$name: holds in all $states states" ;;
        nothing:*) echo "$name: does not hold"; cat result; exit 1 ;;
        *:0:*) echo "$name: NOT rejected, so the check proves nothing"; exit 1 ;;
        "$expected:$errors:$expected"*) echo "$name: rejected, as it must be: $found" ;;
        *) echo "$name: rejected for another reason than $expected: $found"; cat result; exit 1 ;;
    esac
}

check 'late commits' nothing
check 'late commits and a failed attempt' nothing -DFAILS=1
check 'late commits and a killed relay' nothing -DCRASHES=1
check 'late commits and a lease that lapses under a live relay' nothing -DLAPSES=1
check 'second statement in the first snapshot' 'invalid end state' -DONE_SNAPSHOT
check "claim without the holder's lock" 'invalid end state' -DNO_HOLDER_LOCK
check 'holder that has stopped running' 'assertion violated (((holder<3)' -DSTALE_HOLDER -DFAILS=1
check 'settle without the fence' 'assertion violated (claims[gone]==mine_claims)' -DNO_FENCE -DLAPSES=1
