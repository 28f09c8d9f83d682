/* The protocol of src/comm (control.h, action.c, wait.c) for spin: publish, see all others, take chunks, count them, reuse
 * flags and counters, sleep and be woken, hear of a death. Every interleaving of single accesses to shared memory.
 *
 * What must hold: no assertion fails, and every rank comes to its end (a sleep has no timeout here, so a missed wake-up is
 * a state without an end).
 *   - A flag that is seen shows the payload of its own operation.
 *   - Each chunk is done exactly once, while the buffers of all ranks belong to the operation.
 *   - An operation is finished only when all its chunks are.
 *   - With DEATH: one rank may die anywhere; the launcher says so, and all others come to their end.
 *
 * Memory is sequentially consistent here. Where the program relies on that for a store that a load follows, the mutations
 * LATE_... put a store buffer in its place. That release and acquire suffice elsewhere is the thread sanitizer's part
 * (test/e2e/full_races.sh).
 *
 * RANKS, WINDOW, OPS, CHUNKS: sizes. All other names that are tested with #ifdef break the protocol; test/e2e/full_model.sh
 * demands that each of them is found. */
#ifndef CHUNKS
#define CHUNKS RANKS
#endif
#ifndef VICTIM
#define VICTIM RANKS
#endif
#ifdef FEW_SLOTS
#define SLOTS WINDOW
#else
#define SLOTS (2 * WINDOW)
#endif

/* Odd operations are of the arena path, even ones of the inline path. */
#define HAS_CHUNKS(s) ((s) % 2)
#define PART(m) (CHUNKS * ((m) + 1) / RANKS - CHUNKS * (m) / RANKS)
#define CHUNK(m, k) (CHUNKS * (m) / RANKS + (k))
#define AT(m, s) ((m) * SLOTS + (s) % SLOTS)

/* ---- shared memory ---- */
byte sequence[RANKS * SLOTS]; /* the flag */
byte payload[RANKS * SLOTS];
byte next[RANKS * SLOTS];
byte done[SLOTS];
bit sleeping[RANKS];
byte sleepers;
bit bell[RANKS]; /* rung since its rank last read it */
bit cause;

/* ---- the kernel ---- */
bit in_futex[RANKS];

/* ---- what the launcher sees of rank VICTIM ---- */
bit died, gone;

/* ---- what is checked ---- */
byte buffer[RANKS * WINDOW]; /* operation that it belongs to; 0: its rank's own */
byte chunks_done[OPS + 1];   /* bits */

/* wh_comm_wake_rank. The bell and the futex's wake in one step: who goes to sleep in between would see the bell. */
inline ring(r) {
    if
    :: sleeping[r] ->
        d_step {
#ifndef NO_BELL
            bell[r] = 1;
#endif
            in_futex[r] = 0
        }
    :: else
    fi
}

/* After each write that others can see. */
#ifdef DEATH
#define DIE if :: mortal -> goto death :: true fi
#else
#define DIE skip
#endif

/* wh_comm_wake */
inline wake() {
    if
    :: sleepers == 0
    :: else ->
        to = 0;
        do
        :: to == RANKS -> break
        :: to == me -> to++
        :: else -> ring(to); to++
        od;
        to = 0
    fi
}

/* In one step: nobody may look at these before the flag is set. */
inline prepare(s) {
    d_step {
        payload[AT(me, s)] = s;
        if
        :: HAS_CHUNKS(s) -> next[AT(me, s)] = 0
        :: else
        fi;
        if
        :: HAS_CHUNKS(s) && me == 0 -> done[s % SLOTS] = 0
        :: else
        fi
    }
}

/* wh_action_start */
inline start() {
    d_step {
        started++;
        arrived[started % WINDOW] = 0;
        finished[started % WINDOW] = 0;
        assert(buffer[me * WINDOW + started % WINDOW] == 0);
        buffer[me * WINDOW + started % WINDOW] = started
    }
#ifndef LATE_PAYLOAD
    prepare(started);
#endif
#ifdef LATE_FLAG
    late_flag[me] = started;
#else
    sequence[AT(me, started)] = started;
#endif
    DIE;
#ifdef LATE_PAYLOAD
    prepare(started);
#endif
#ifndef NO_WAKE_AT_START
    wake()
#endif
}

/* see_all: from the first member on that has not been seen */
inline see_all() {
    do
    :: atomic {
           arrived[s % WINDOW] < RANKS && sequence[AT(arrived[s % WINDOW], s)] == s ->
           assert(payload[AT(arrived[s % WINDOW], s)] == s);
           arrived[s % WINDOW]++
       }
    :: else -> break
    od
}

inline check_buffers() {
    to = 0;
    do
    :: to < RANKS -> assert(buffer[to * WINDOW + s % WINDOW] == s); to++
    :: else -> break
    od;
    to = 0
}

inline do_chunk() {
    atomic {
        assert((chunks_done[s] & (1 << CHUNK(m, k))) == 0);
        chunks_done[s] = chunks_done[s] | (1 << CHUNK(m, k));
        check_buffers()
    }
    atomic { check_buffers() }
}

/* do_chunks and take_chunk: first of the own part, then of the parts of those that come later. The look at the counter
 * before the fetch-add is one step with it: it spares a write and decides nothing. */
inline do_chunks() {
    m = me;
    tried = 0;
    do
    :: tried == RANKS -> break
    :: else ->
#ifdef TORN_TAKE
        k = next[AT(m, s)];
        next[AT(m, s)] = (k < PART(m) -> k + 1 : k);
#else
        d_step {
            k = next[AT(m, s)];
            next[AT(m, s)] = (k < PART(m) -> k + 1 : k)
        }
#endif
        DIE;
        if
        :: k >= PART(m) -> m = (m + 1) % RANKS; tried++
        :: else ->
#ifndef EARLY_COUNT
            do_chunk();
#endif
            d_step { done[s % SLOTS]++; last = (done[s % SLOTS] == CHUNKS) }
#ifdef EARLY_COUNT
            do_chunk();
#endif
            DIE;
            if
#ifndef NO_WAKE_AT_LAST_CHUNK
            :: last -> wake()
#endif
            :: else
            fi;
            m = me;
            tried = 0;
            last = 0
        fi;
        k = 0
    od;
    atomic { m = 0; tried = 0 }
#ifdef FINISHED_WHEN_TAKEN
    finished[s % WINDOW] = 1
#else
    finished[s % WINDOW] = (done[s % SLOTS] == CHUNKS)
#endif
}

/* finish_inline: reads what all members put into their flags */
inline read_payloads() {
    m = 0;
    do
    :: m < RANKS -> assert(payload[AT(m, s)] == s); m++
    :: else -> break
    od;
    m = 0;
    finished[s % WINDOW] = 1
}

/* wh_comm_move */
inline move() {
#if defined(DEATH) && !defined(NO_LOOK_AT_CAUSE)
    if
    :: cause -> goto leave
    :: else
    fi;
#endif
    s = oldest;
    do
    :: s > started -> break
    :: else ->
        if
        :: finished[s % WINDOW]
        :: else ->
            see_all();
            if
#ifdef NOT_ALL
            :: arrived[s % WINDOW] >= RANKS - 1 ->
#else
            :: arrived[s % WINDOW] == RANKS ->
#endif
                if
                :: HAS_CHUNKS(s) -> do_chunks()
                :: else -> read_payloads()
                fi
            :: else
            fi;
            d_step {
                if
                :: finished[s % WINDOW] -> /* from here on its rank may write the buffer */
                    assert(!HAS_CHUNKS(s) || chunks_done[s] == (1 << CHUNKS) - 1);
                    buffer[me * WINDOW + s % WINDOW] = 0
                :: else
                fi
            }
        fi;
        if
        :: s == oldest && finished[s % WINDOW] -> oldest++
        :: else
        fi;
        s++
    od;
    s = 0
}

#define READY (oldest > target || finished[target % WINDOW])

#ifdef NO_SLEEP
/* A look that finds the same as the last one is left out: until the oldest operation's next flag or last count is there. */
inline wait() {
    do
    :: move();
        if
        :: READY -> break
        :: else
        fi;
        (arrived[oldest % WINDOW] < RANKS && sequence[AT(arrived[oldest % WINDOW], oldest)] == oldest) ||
            (arrived[oldest % WINDOW] == RANKS && done[oldest % SLOTS] == CHUNKS)
    od
}
#else
/* wh_comm_wait_until: a look; then registered, another look; then asleep */
inline wait() {
    do
    :: move();
        if
        :: READY -> break
        :: !READY && !registered ->
#ifdef LATE_REGISTRATION
            late_sleeping[me] = 1;
#else
            sleeping[me] = 1;
            sleepers++;
            DIE;
#endif
            registered = 1;
            bell[me] = 0
#ifdef NO_SECOND_LOOK
            ; goto_sleep()
#endif
        :: !READY && registered ->
#ifdef LATE_BELL
            bell[me] = 0;
#endif
            goto_sleep()
        fi
    od;
    unregister()
}
#endif

inline goto_sleep() {
    atomic {
        if
        :: bell[me]
        :: else -> in_futex[me] = 1
        fi
    }
    in_futex[me] == 0;
    unregister()
}

inline unregister() {
    if
    :: registered ->
#ifdef LATE_REGISTRATION
        d_step { if :: late_sleeping[me] -> late_sleeping[me] = 0 :: else -> sleepers--; sleeping[me] = 0 fi }
#else
        sleepers--;
        sleeping[me] = 0;
#endif
        registered = 0
    :: else
    fi
}

/* ---- store buffers of the mutations ---- */
#ifdef LATE_FLAG
byte late_flag[RANKS];
#endif
#ifdef LATE_REGISTRATION
bit late_sleeping[RANKS];
#endif
#if defined(LATE_FLAG) || defined(LATE_REGISTRATION)
active proctype store_buffers() {
    byte r;
end:
    do
#ifdef LATE_FLAG
    :: atomic { late_flag[0] -> sequence[AT(0, late_flag[0])] = late_flag[0]; late_flag[0] = 0 }
    :: atomic { late_flag[1] -> sequence[AT(1, late_flag[1])] = late_flag[1]; late_flag[1] = 0 }
#endif
#ifdef LATE_REGISTRATION
    :: atomic { late_sleeping[0] -> late_sleeping[0] = 0; sleeping[0] = 1; sleepers++ }
    :: atomic { late_sleeping[1] -> late_sleeping[1] = 0; sleeping[1] = 1; sleepers++ }
#endif
    od
}
#endif

#ifdef ONE_TOO_MANY
#define HAS_ROOM (started + 1 - oldest <= WINDOW)
#else
#define HAS_ROOM (started + 1 - oldest < WINDOW)
#endif

#if RANKS > 2
#define CHOOSE_TARGET target = oldest
#else
#define CHOOSE_TARGET if :: target = oldest :: oldest < started -> target = started fi
#endif

proctype rank(byte me; bit mortal) {
    byte started, oldest = 1, arrived[WINDOW], target, s, m, k, tried, to;
    bit finished[WINDOW], last, registered;
    do
    :: started < OPS && HAS_ROOM -> DIE; start()
    :: oldest <= started -> CHOOSE_TARGET; wait(); target = 0
    :: started == OPS && oldest > started -> break
    od;
leave:
    unregister();
#ifdef DEATH
    if
    :: mortal -> gone = 1 /* has done all and ended with 0 */
    :: else
    fi;
    goto end;
death:
    died = 1;
end:
#endif
    skip
}

init {
    byte r;
    atomic {
        r = 0;
        do
        :: r < RANKS -> run rank(r, r == VICTIM); r++
        :: else -> break
        od;
        r = 0
    }
#ifdef DEATH
    /* the launcher: wh_comm_job_ended */
    if
    :: gone
    :: died ->
        cause = 1;
#ifndef NO_WAKE_AT_DEATH
        do
        :: r < RANKS -> ring(r); r++
        :: else -> break
        od
#endif
    fi
#endif
}
