/*
 * One lane, three jobs, two relays, a producer that commits in any order, a crash, a lapsed lease, a failed attempt.
 *
 * What PostgreSQL gives is modelled as it is: a statement sees the snapshot taken when it began; a row lock is
 * taken, skipped or waited for; a locked row is looked at again in its newest committed version; a unique index
 * makes the second of two starts wait for the first, or fail.
 *
 * Spin checks every interleaving: at most one job runs, none starts while the statement that starts it can see a
 * lower unfinished one, and (as the absence of invalid end states) no job is stranded.
 *
 *   -DONE_SNAPSHOT   the settle's second statement sees with the first one's snapshot: must strand a job
 *   -DNO_HOLDER_LOCK the claim blocks jobs without holding the holder's lock: must strand a job
 *   -DSTALE_HOLDER   a job that ran when the claim looked is started although it has stopped: must overtake a lower one
 *   -DNO_FENCE       a settle matches by id alone: must let a late result close another's claim
 */
#define JOBS 3

/* How often each may happen in one history. */
#ifndef FAILS
#define FAILS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef LAPSES
#define LAPSES 0
#endif

mtype = { absent, pending, blocked, running, done };

mtype state[JOBS + 1] = absent;  /* committed */
byte locker[JOBS + 1];           /* the relay whose transaction holds the row, 0 for none */
byte owner[JOBS + 1];            /* locked_by */
byte claims[JOBS + 1];
bool lapsed[JOBS + 1];
byte starting;                   /* the relay whose uncommitted start stands in the unique index */
byte fails = FAILS, crashes = CRASHES, lapses = LAPSES;

#define HOLDS(s) ((s) == pending || (s) == blocked || (s) == running)
#define ALL_DONE (state[1] == done && state[2] == done && state[3] == done)
#define ANY_PENDING (state[1] == pending || state[2] == pending || state[3] == pending)
/* What stands in the unique index on running rows, for a start by `me` in a transaction that ends job `gone`. */
#define INDEX_FREE (starting == 0 && (state[1] != running || gone == 1) && (state[2] != running || gone == 2) && (state[3] != running || gone == 3))
/* What was the holder because it ran is the holder only while it runs: a lower job may have been committed since. */
#ifdef STALE_HOLDER
#define STILL_HOLDER true
#else
#define STILL_HOLDER (state[holder] == running || seen[holder] != running)
#endif
#define LAPSED(j) (lapsed[j] && state[j] == running)

inline look() {
    d_step { seen[1] = state[1]; seen[2] = state[2]; seen[3] = state[3]; }
}

/* The running job, else the lowest that holds the lane, as the snapshot has it; 0 for none. */
inline find_holder() {
    d_step {
        holder = 0;
        if
        :: seen[1] == running -> holder = 1
        :: seen[2] == running -> holder = 2
        :: seen[3] == running -> holder = 3
        :: else ->
            if
            :: HOLDS(seen[1]) -> holder = 1
            :: !HOLDS(seen[1]) && HOLDS(seen[2]) -> holder = 2
            :: !HOLDS(seen[1]) && !HOLDS(seen[2]) && HOLDS(seen[3]) -> holder = 3
            :: else -> skip
            fi
        fi
    }
}

inline release_locks() {
    if :: locker[1] == me -> locker[1] = 0 :: else fi;
    if :: locker[2] == me -> locker[2] = 0 :: else fi;
    if :: locker[3] == me -> locker[3] = 0 :: else fi;
    if :: starting == me -> starting = 0 :: else fi
}

/* A doorbell: due by the snapshot, lockable at once, and due still. */
inline ring(j) {
    if
    :: seen[j] == pending && locker[j] == 0 && state[j] == pending -> locker[j] = me; bell[j] = true
    :: else -> bell[j] = false
    fi
}

/* What a transaction knew is forgotten, so that states that differ in nothing else are one. */
inline forget() {
    bell[1] = false; bell[2] = false; bell[3] = false;
    seen[1] = absent; seen[2] = absent; seen[3] = absent;
    holder = 0; started = 0; woken = 0; gone = 0; held = false; failed = false; outcome = absent
}

/* Enters the unique index, or fails: by violation, or by lock timeout while another's start is undecided. */
inline enter_index(j) {
    do
    :: atomic { INDEX_FREE -> starting = me; started = j; break }
    :: atomic { !INDEX_FREE -> failed = true; break }
    od;
    skip
}

inline check_one_runs() {
    assert((state[1] == running) + (state[2] == running) + (state[3] == running) <= 1)
}

inline check_order(j) {
    assert(j < 2 || !HOLDS(seen[1]) || gone == 1);
    assert(j < 3 || !HOLDS(seen[2]) || gone == 2)
}

inline claim() {
    look();
    /* SKIP LOCKED waits for nothing, so the three are one step. */
    d_step { ring(1); ring(2); ring(3) }
    find_holder();
    gone = 0; started = 0; failed = false;
#ifdef NO_HOLDER_LOCK
    held = holder != 0;
#else
    atomic {
        if
        :: (holder != 0 && (locker[holder] == 0 || locker[holder] == me) && HOLDS(state[holder]) && STILL_HOLDER) ->
            locker[holder] = me; held = true
        :: else -> held = false
        fi
    }
#endif
    if
    :: held && state[holder] != running && HOLDS(state[holder]) -> check_order(holder); enter_index(holder)
    :: else
    fi;
    skip;
    d_step {
        if
        :: held && !failed ->
            if :: started -> state[started] = running; owner[started] = me; claims[started]++; mine = started;
                             mine_claims = claims[started]; lapsed[started] = false
               :: else fi;
            if :: bell[1] && holder != 1 -> state[1] = blocked :: else fi;
            if :: bell[2] && holder != 2 -> state[2] = blocked :: else fi;
            if :: bell[3] && holder != 3 -> state[3] = blocked :: else fi
        :: else
        fi;
        release_locks(); forget(); check_one_runs()
    }
}

/* The second statement of settle and of reclaim: `gone` is the job the first one changed, to `outcome`. */
inline go_on(may_chain) {
#ifndef ONE_SNAPSHOT
    look();
#endif
    seen[gone] = outcome;
    find_holder();
    started = 0; woken = 0; failed = false;
    if
    :: (holder != 0 && holder != gone && (seen[holder] == blocked || (may_chain && seen[holder] == pending))) ->
        /* Waits for the row, then looks at it again. */
        atomic { locker[holder] == 0 || locker[holder] == me -> locker[holder] = me };
        if
        :: state[holder] == blocked || (may_chain && state[holder] == pending) ->
            if
            :: may_chain -> check_order(holder); enter_index(holder)
            :: else -> woken = holder
            fi
        :: else
        fi
    :: else
    fi
}

inline commit_settle() {
    d_step {
        state[gone] = outcome; owner[gone] = 0; lapsed[gone] = false; mine = 0; mine_claims = 0;
        if :: woken -> state[woken] = pending :: else fi;
        if
        :: started -> state[started] = running; owner[started] = me; claims[started]++; mine = started;
                      mine_claims = claims[started]; lapsed[started] = false
        :: else
        fi;
        release_locks(); forget(); chain = false; check_one_runs()
    }
}

inline settle() {
    if
    :: outcome = done
    :: atomic { fails > 0 -> fails--; outcome = pending }
    fi;
    if :: chain = true :: chain = false fi;
    do
    ::  look();
        gone = mine;
        atomic { locker[gone] == 0 -> locker[gone] = me };
        if
#ifdef NO_FENCE
        :: state[gone] == running ->
#else
        :: state[gone] == running && owner[gone] == me && claims[gone] == mine_claims ->
#endif
            /* A result may be written only by whoever holds the newest claim. */
            assert(claims[gone] == mine_claims);
            go_on(chain);
            if
            :: failed -> d_step { release_locks(); forget(); chain = false }
            :: else -> commit_settle(); break
            fi
        :: else -> d_step { release_locks(); mine = 0; mine_claims = 0; forget(); chain = false }; break   /* fenced out */
        fi
    od
}

inline reclaim() {
    look();
    gone = 0;
    atomic {
        if
        :: LAPSED(1) && locker[1] == 0 -> gone = 1; locker[1] = me
        :: LAPSED(2) && locker[2] == 0 -> gone = 2; locker[2] = me
        :: LAPSED(3) && locker[3] == 0 -> gone = 3; locker[3] = me
        :: else
        fi
    };
    if
    :: gone -> outcome = pending; go_on(false); commit_settle()
    :: else -> d_step { forget() }
    fi
}

proctype Relay(byte me) {
    mtype seen[JOBS + 1] = absent, outcome;
    bool bell[JOBS + 1];
    byte holder, mine, mine_claims, started, woken, gone;
    bool held, chain, failed;
    do
    :: mine == 0 && ANY_PENDING -> claim()
    :: mine == 0 && (LAPSED(1) || LAPSED(2) || LAPSED(3)) -> reclaim()
    :: mine != 0 -> settle()
    /* Killed in mid-send: nobody settles, the lease lapses. The process that follows has another name. */
    :: atomic { mine != 0 && crashes > 0 -> crashes--; lapsed[mine] = (owner[mine] == me && state[mine] == running);
                mine = 0; mine_claims = 0 }
    /* Frozen, or cut off: the lease lapses and the result comes late. */
    :: atomic { mine != 0 && lapses > 0 && owner[mine] == me && state[mine] == running -> lapses--; lapsed[mine] = true }
    :: ALL_DONE -> break
    od
}

proctype Producer() {
    do
    :: atomic { state[1] == absent -> state[1] = pending }
    :: atomic { state[2] == absent -> state[2] = pending }
    :: atomic { state[3] == absent -> state[3] = pending }
    :: state[1] != absent && state[2] != absent && state[3] != absent -> break
    od
}

init {
    atomic { run Producer(); run Relay(1); run Relay(2) }
}
