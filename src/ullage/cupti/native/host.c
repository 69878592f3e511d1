/* What the program's own threads do. Each thread has a lane: a ring of records that it alone fills, without a lock, and that whoever
 * holds the recording's lock empties into the file. A thread whose ring is full empties all rings itself. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEEPEST = 65535, MOST_EXTRA = 1 << 15, MOST_EDGES = 64, SHARES = 16 };
#define QUOTA 13107u /* records of sums, half a MB: when so many more are written, sums are written half as often */

struct lane {
    struct lane *next;
    _Atomic bool taken;
    uint32_t thread;
    uint32_t waits; /* how deep it is in calls that wait; of the outermost, seen by who writes: */
    _Atomic uint32_t wait_name;
    _Atomic uint64_t wait_start; /* 0: it is in none */
    _Atomic uint64_t team;       /* for which it waits, 0: for none */
    struct region *regions; /* open ones, the innermost last */
    uint32_t depth, deepest;
    uint32_t unpushed[STACKS]; /* regions too deep to be recorded, that are yet to be popped */
    struct aggregate *aggregate; /* kept for the next recording */
    _Atomic bool sums;           /* events are not recorded any more; changed under the recording's lock */
    bool edge;                   /* the outermost call is MPI's first or last one, */
    uint32_t call;               /* else it is this, … */
    uint64_t call_start;         /* … since then: where sums are made */
    uint32_t last_call;          /* where they are not: the one that ended last, … */
    uint64_t last_end;           /* … and when */
    uint64_t since;              /* when the thread began to be useful, in these regions; … */
    uint64_t anchor, paid;       /* … when it read its CPU clock last, and until when all its readings are earned */
    _Atomic bool looked_at;      /* one at a time, the thread or who writes, takes note of … */
    struct presence presence;    /* … until when it is known whether the thread was on a processor */
    struct useful *useful;       /* what this thread does while it is useful, NULL: not counted; */
    struct ring *_Atomic ring; /* changed under the recording's lock, by the thread, … */
    _Atomic uint32_t life;     /* … when `rings_mine` is no longer this */
};

static _Atomic(struct lane *) lanes; /* grows only: the lane of a thread that ended is the next one's */
static _Thread_local struct lane *mine;
static pthread_key_t ending;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t last_serial;
static _Atomic bool enough; /* events: from now on sums are made */
static uint32_t edges;      /* at which sums were written, under the recording's lock like these: */
static struct { uint64_t last, width, quota; } cuts; /* when sums were last written, how often they are, and how many records that holds for */

static void no_regions(struct lane *lane) {
    lane->depth = 0;
    memset(lane->unpushed, 0, sizeof lane->unpushed);
}

static bool sums_of(const struct lane *lane) {
    return atomic_load_explicit(&lane->sums, memory_order_relaxed) &&
           atomic_load_explicit(&lane->life, memory_order_relaxed) == rings_mine();
}

static void useful_until(struct lane *lane, uint64_t now);

/* Whoever else holds it is done at once, or else not for long. */
static void set_presence(struct lane *lane, struct presence presence) {
    while (atomic_exchange_explicit(&lane->looked_at, true, memory_order_acquire)) sched_yield();
    lane->presence = presence;
    atomic_store_explicit(&lane->looked_at, false, memory_order_release);
}

static void thread_ends(void *given) {
    struct lane *lane = given;
    mine = NULL;
    no_regions(lane);
    useful_until(lane, monotonic());
    set_presence(lane, (struct presence){0});
    if (sums_of(lane)) aggregate_alone(lane->aggregate, monotonic());
    if (lane->useful) useful_thread_ends(lane->useful), lane->useful = NULL;
    atomic_store(&lane->wait_start, 0);
    atomic_store_explicit(&lane->taken, false, memory_order_release);
}

static void make_key(void) { pthread_key_create(&ending, thread_ends); }

static struct lane *left_over(void) {
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) {
        bool free = false;
        if (atomic_compare_exchange_strong(&lane->taken, &free, true)) return lane;
    }
    return NULL;
}

static struct lane *added(void) {
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane) return NULL;
    lane->taken = true;
    lane->next = atomic_load(&lanes);
    while (!atomic_compare_exchange_weak(&lanes, &lane->next, lane)) {}
    return lane;
}

/* The first ring makes the recording: from then on a killed process leaves what it did. Where the recording's lock can't be had, nothing
 * can be written either. */
static bool has_ring(struct lane *lane) {
    uint32_t life = rings_mine();
    if (lane->ring && lane->life == life) return true;
    if (!recording_lock()) return false;
    struct ring *old = lane->ring;
    lane->sums = false;
    if (lane->life) set_presence(lane, (struct presence){0}), lane->anchor = 0, lane->since = monotonic(); /* of another recording */
    if (!settings.events) enough = true;
    lane->ring = rings_add();
    rings_give_back(old);
    lane->life = rings_mine();
    recording_unlock();
    return lane->ring;
}

static struct lane *for_thread(void) {
    pthread_once(&once, make_key);
    cpu_clock_cost();
    host_costs();
    struct lane *lane = left_over();
    if (!lane) lane = added();
    if (!lane) return NULL;
    lane->thread = (uint32_t)syscall(SYS_gettid);
    lane->waits = 0, lane->call = 0, lane->last_call = 0;
    lane->useful = useful_mine();
    set_presence(lane, lane->thread == (uint32_t)getpid() ? presence_at_start() : presence_now(monotonic()));
    lane->anchor = lane->since = lane->presence.at, lane->paid = 0;
    no_regions(lane);
    if (sums_of(lane)) aggregate_moved(lane->aggregate, (struct path){NULL, 0}, 0, monotonic(), false);
    pthread_setspecific(ending, lane);
    recorder_needed();
    return lane;
}

static struct lane *lane_for_thread(void) {
    int before = errno;
    if (rings_mine() && !mine) mine = for_thread();
    struct lane *lane = rings_mine() && mine && has_ring(mine) ? mine : NULL;
    errno = before;
    return lane;
}

static inline struct lane *ready(void) {
    return mine && atomic_load_explicit(&mine->life, memory_order_relaxed) == rings_mine() ? mine : NULL;
}

struct lane *lane(void) {
    struct lane *here = ready();
    return here ? here : lane_for_thread();
}

struct lane *lane_if_any(void) { return ready(); }

/* --- records --- */

static void emptied(void) {
    int before = errno;
    if (recording_lock()) host_write(), recording_unlock();
    errno = before;
}

static void put(struct ring *ring, const struct record *record) {
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->records[head % ROOM] = *record;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

static bool has_place(const struct ring *ring) {
    return atomic_load_explicit(&ring->head, memory_order_relaxed) - atomic_load_explicit(&ring->tail, memory_order_acquire) < ROOM;
}

/* What the recorder now and then takes of a thread is recorded as well: it is not the program's. */
static void put_overhead(struct ring *ring, uint64_t start, uint32_t thread) {
    struct record record = {.start = start, .end = monotonic(), .thread = thread, .kind = HOST_OVERHEAD};
    if (has_place(ring)) put(ring, &record);
}

static void append(struct ring *ring, const struct record *record) {
    uint32_t kept = atomic_load_explicit(&ring->head, memory_order_relaxed) - atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (kept < ROOM && kept != ROOM / 2) {
        put(ring, record);
        return;
    }
    uint64_t start = monotonic();
    if (kept == ROOM) emptied();
    else threads_wake();
    if (has_place(ring)) put(ring, record);
    else costs.lost++;
    put_overhead(ring, start, record->thread);
}

static struct record of_region(const struct lane *lane, const struct region *region, enum host_kind kind) {
    size_t depth = (size_t)(region - lane->regions);
    return (struct record){.start = region->start, .thread = lane->thread, .name = region->name, .kind = (uint16_t)kind,
                           .depth = (uint16_t)depth, .serial = region->serial};
}

/* --- on a processor or off it --- */

enum { LEAST_OFF = 10000, LEAST_LOOKED_AT = 1000000 /* ns */ };

static bool affordable(const struct lane *lane, uint64_t now) { return lane->paid <= now + (uint64_t)READING_AHEAD * EARNED_IN; }

/* A stretch that began unseen is looked at all the same where it was so long that a reading is earned in it. */
static bool worth_reading(const struct lane *lane, uint64_t now) {
    bool long_enough = lane->anchor == lane->since || now - lane->since >= cpu_clock_ns * EARNED_IN;
    return long_enough && cpu_clock_ns && !lane->waits && lane->life == rings_mine();
}

/* Read the thread's CPU clock; for how long it was off since the last reading, which was made at `from`. */
static uint64_t off_until(struct lane *lane, uint64_t now, uint64_t *from) {
    struct presence before = {0}, after = presence_now(now);
    lane->anchor = now, lane->paid = (lane->paid > now ? lane->paid : now) + cpu_clock_ns * EARNED_IN;
    if (atomic_exchange_explicit(&lane->looked_at, true, memory_order_acquire)) return 0; /* what is missing is just being written */
    before = lane->presence, lane->presence = after;
    atomic_store_explicit(&lane->looked_at, false, memory_order_release);
    *from = before.at;
    return presence_off(&before, &after);
}

static struct record of_absence(const struct lane *lane, uint64_t from, uint64_t until, uint64_t off) {
    return (struct record){.start = from, .end = until, .thread = lane->thread, .kind = HOST_OFF, .bytes = off};
}

/* The thread is useful no longer, or in other regions. */
static void useful_until(struct lane *lane, uint64_t now) {
    uint64_t from = 0;
    if (!worth_reading(lane, now)) return;
    uint64_t off = off_until(lane, now, &from);
    struct record record = of_absence(lane, from, now, off);
    if (sums_of(lane)) aggregate_seen(lane->aggregate, &lane->presence, now, off);
    else if (off >= LEAST_OFF) append(lane->ring, &record);
}

static void useful_since(struct lane *lane, uint64_t now) {
    uint64_t from;
    lane->since = now;
    if (lane->waits || lane->life != rings_mine() || !cpu_clock_ns) return;
    if (!affordable(lane, now)) {
        lane->anchor = 0; /* the stretch starts without a reading, even where the one before it has just had one */
        return;
    }
    if (lane->anchor == now) return;
    off_until(lane, now, &from);
    if (sums_of(lane)) aggregate_seen(lane->aggregate, &lane->presence, now, 0);
}

/* How long a thread was off since that was last known; 0, and nothing changes, where it is not worth a record. */
static uint64_t off_by_now(struct lane *lane, struct presence *before, struct presence *after) {
    uint64_t off = 0;
    if (atomic_exchange_explicit(&lane->looked_at, true, memory_order_acquire)) return 0;
    *before = lane->presence, after->at = monotonic();
    if (before->at && cpu_clock_of(lane->thread, &after->cpu)) off = presence_off(before, after);
    if (off < LEAST_LOOKED_AT) off = 0;
    else lane->presence = *after;
    atomic_store_explicit(&lane->looked_at, false, memory_order_release);
    return off;
}

/* A thread that sleeps for long says nothing of it meanwhile. */
void host_look(void) {
    for (struct lane *lane = rings_mine() ? atomic_load(&lanes) : NULL; lane; lane = lane->next) {
        struct presence before, after;
        if (!lane->taken || lane->life != rings_mine() || sums_of(lane) || lane->wait_start) continue;
        uint64_t off = off_by_now(lane, &before, &after);
        struct record record = of_absence(lane, before.at, after.at, off);
        if (off && recording_add(HOST, 0, &(struct iovec){&record, sizeof record}, 1)) costs.records++;
    }
}

/* --- sums in the place of records --- */

static struct path path_of(const struct lane *lane) { return (struct path){lane->regions, lane->depth}; }

static void name_paths(struct lane *lane, uint32_t from) {
    for (uint32_t at = from; at < lane->depth; at++)
        lane->regions[at].node = aggregate_node(lane->aggregate, at ? lane->regions[at - 1].node : 0, lane->regions[at].name);
}

/* As records, the open regions end where the sums begin. */
static bool begin_sums(struct lane *lane, uint64_t now) {
    if (!lane->aggregate && !(lane->aggregate = aggregate_new())) return false;
    for (uint32_t at = 0; at < lane->depth; at++) {
        struct record record = of_region(lane, &lane->regions[at], HOST_REGION);
        record.end = now;
        append(lane->ring, &record);
    }
    if (!recording_lock()) return false;
    struct ring *ring = lane->ring;
    aggregate_begin(lane->aggregate, &ring->sums, lane->thread, now, host_costs().sum_between);
    name_paths(lane, 0);
    aggregate_after(lane->aggregate, path_of(lane), lane->last_call, lane->last_end);
    aggregate_moved(lane->aggregate, path_of(lane), 0, now, false);
    aggregate_seen(lane->aggregate, &lane->presence, now, 0);
    lane->sums = true;
    recording_unlock();
    return true;
}

static bool summed(struct lane *lane, uint64_t now) {
    if (enough && !sums_of(lane) && !lane->waits) begin_sums(lane, now);
    return sums_of(lane);
}

static void write_sums(uint64_t now) {
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next)
        if (sums_of(lane)) aggregate_write(lane->aggregate, now);
    cuts.last = now;
}

/* How often follows how much has been written, so that a recording grows with the logarithm of a run's length. */
void host_cut(enum work work) {
    uint64_t now = monotonic(), usual = (settings.flush ? settings.flush : 1000) * 1000000u;
    if (!rings_mine() || !enough) return;
    if (!cuts.width) cuts.width = usual, cuts.quota = QUOTA;
    for (; costs.sums > cuts.quota; cuts.quota += QUOTA) cuts.width *= 2;
    if (now - cuts.last >= (work == ASKED ? cuts.width / SHARES : cuts.width - cuts.width / SHARES)) write_sums(now);
}

void host_tell_sums(void) {
    if (!rings_mine()) return;
    write_sums(monotonic());
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next)
        if (sums_of(lane)) aggregate_tell(lane->aggregate);
}

void host_closed(void) {
    enough = false;
    edges = 0;
    memset(&cuts, 0, sizeof cuts);
}

/* What can't be summed up is still recorded, but not without end. */
static void append_extra(struct lane *lane, const struct record *record) {
    if (!sums_of(lane)) append(lane->ring, record);
    else if (atomic_fetch_add(&costs.extra, 1) < MOST_EXTRA) append(lane->ring, record);
    else costs.lost++;
}

void host_record(struct lane *lane, enum host_kind kind, uint32_t name, uint64_t start, uint64_t end, uint64_t bytes) {
    if (!recording_wanted()) return;
    if (kind == HOST_MPI && sums_of(lane)) {
        if (!lane->waits) aggregate_past(lane->aggregate, path_of(lane), name, start, end);
        return;
    }
    struct record record = {.start = start, .end = end, .thread = lane->thread, .name = name, .kind = (uint16_t)kind,
                            .depth = (uint16_t)lane->depth, .bytes = bytes};
    if (kind == HOST_MPI) lane->last_call = name, lane->last_end = end;
    append_extra(lane, &record);
}

void host_summed(struct lane *lane) { summed(lane, monotonic()); }

void host_range(const struct record *record) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    if (here) append_extra(here, record);
}

/* An edge of the run, where sums may have to be parted. */
static void cut_here(void) {
    int before = errno;
    if (recording_lock()) {
        if (edges++ < MOST_EDGES) write_sums(monotonic());
        recording_unlock();
    }
    errno = before;
}

static void wait_summed(struct lane *lane, uint32_t name, uint64_t now) {
    lane->call = lane->edge ? 0 : name, lane->call_start = now;
    if (lane->edge) aggregate_until(lane->aggregate, now), cut_here();
    else aggregate_call(lane->aggregate, path_of(lane), name, now, atomic_load_explicit(&lane->team, memory_order_relaxed));
}

/* Only the outermost call counts: MPI_Init may call MPI_Barrier, Fortran's functions may call C's. The name is there before the start is,
 * and the start is gone before the call's record is there: what `still_waits` sees goes together, and comes before that record. */
static void begin_waiting(struct lane *lane, uint32_t name, bool edge, uint64_t team) {
    if (lane->waits) {
        lane->waits++;
        return;
    }
    uint64_t now = monotonic();
    useful_until(lane, now);
    lane->waits++;
    bool sums = atomic_load_explicit(&lane->sums, memory_order_relaxed); /* of this recording: the lane was asked for just now */
    lane->edge = edge;
    atomic_store_explicit(&lane->team, team, memory_order_relaxed);
    if (lane->useful) useful_ends(lane->useful, now);
    if (!edge && !sums && atomic_load_explicit(&enough, memory_order_relaxed)) sums = begin_sums(lane, now);
    if (!sums || edge) atomic_store_explicit(&lane->wait_name, name, memory_order_release);
    if (sums) wait_summed(lane, name, now);
    else atomic_store_explicit(&lane->wait_start, now, memory_order_release);
}

void wait_begin(struct lane *lane, uint32_t name, bool edge) { begin_waiting(lane, name, edge, 0); }
void team_wait_begin(struct lane *lane, uint32_t name, uint64_t team) { begin_waiting(lane, name, false, team); }

static uint64_t within(uint64_t low, uint64_t moment, uint64_t high) { return moment < low ? low : moment > high ? high : moment; }

/* What waiting for a team was: for its threads until it ended, then for nobody, and for the next one's work since that began. */
static struct waits waits_of(const struct lane *lane, uint32_t name, uint64_t start, uint64_t next, uint64_t now) {
    uint64_t ended = team_ended(lane->team), over = ended ? within(start, ended, now) : now;
    return (struct waits){{name, openmp_idle(), openmp_forks()}, {over, next ? within(over, next, now) : now, now}};
}

static void record_waits(struct lane *lane, const struct waits *waits, uint64_t start) {
    for (int i = 0; i < 3; start = waits->until[i++])
        if (waits->until[i] > start) host_record(lane, HOST_MPI, waits->calls[i], start, waits->until[i], 0);
}

/* The run's edges are told one by one: they are few. */
static void wait_ends_summed(struct lane *lane, uint64_t next, uint64_t now) {
    uint32_t call = lane->call, name = atomic_load_explicit(&lane->wait_name, memory_order_relaxed);
    lane->call = 0;
    struct waits waits = lane->team ? waits_of(lane, call, lane->call_start, next, now) : (struct waits){0};
    if (call && lane->team) aggregate_waited(lane->aggregate, path_of(lane), &waits, lane->call_start);
    else if (call) aggregate_called(lane->aggregate, path_of(lane), call, lane->call_start, now);
    if (!lane->edge) return;
    struct record record = {.start = lane->call_start, .end = now, .thread = lane->thread, .name = name, .kind = HOST_MPI,
                            .depth = (uint16_t)lane->depth};
    aggregate_until(lane->aggregate, now);
    append_extra(lane, &record);
    cut_here();
}

static void end_waiting(struct lane *lane, uint64_t next) {
    if (!lane->waits || --lane->waits) return;
    if (lane->useful) useful_begins(lane->useful);
    uint64_t now = monotonic(), start = atomic_load_explicit(&lane->wait_start, memory_order_relaxed);
    bool sums = sums_of(lane);
    if (sums) wait_ends_summed(lane, next, now);
    useful_since(lane, now);
    if (sums || !start) return;
    uint32_t name = atomic_load_explicit(&lane->wait_name, memory_order_relaxed);
    struct waits waits = lane->team ? waits_of(lane, name, start, next, now) : (struct waits){{name}, {now, now, now}};
    atomic_store_explicit(&lane->wait_start, 0, memory_order_release);
    if (lane->team) record_waits(lane, &waits, start);
    else host_record(lane, HOST_MPI, name, start, now, 0);
}

void wait_end(struct lane *lane) { end_waiting(lane, 0); }
void team_wait_end(struct lane *lane, uint64_t next) { end_waiting(lane, next); }

void host_thread(struct lane *lane, uint64_t began, uint64_t ended) {
    struct record record = {.start = began, .end = ended, .thread = lane->thread, .kind = HOST_THREAD};
    if (recording_wanted()) append_extra(lane, &record);
}

static bool region_room(struct lane *lane) {
    if (lane->depth < lane->deepest) return true;
    uint32_t deepest = lane->deepest ? lane->deepest * 2 : 32;
    struct region *regions = deepest > DEEPEST ? NULL : realloc(lane->regions, deepest * sizeof *regions);
    if (!regions) return false;
    lane->regions = regions;
    lane->deepest = deepest;
    return true;
}

static void open_region(struct lane *here, uint32_t number, uint32_t serial, enum stack stack) {
    uint64_t now = monotonic();
    useful_until(here, now);
    bool sums = summed(here, now);
    struct region *region = &here->regions[here->depth++];
    *region = (struct region){now, number, serial, 0, stack};
    if (sums) {
        name_paths(here, here->depth - 1);
        aggregate_moved(here->aggregate, path_of(here), here->call, now, true);
        useful_since(here, now);
        return;
    }
    useful_since(here, now);
    struct record record = of_region(here, region, HOST_OPEN);
    append(here->ring, &record);
}

uint32_t region_serial(void) {
    uint32_t serial = atomic_fetch_add(&last_serial, 1) + 1;
    return serial ? serial : region_serial();
}

static uint32_t begun(struct lane *here, uint32_t number, enum stack stack) {
    if (!region_room(here)) {
        costs.lost++;
        return 0;
    }
    uint32_t serial = region_serial();
    open_region(here, number, serial, stack);
    return serial;
}

uint32_t region_begin(const char *name) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    return here ? begun(here, name_number(name), BY_SERIAL) : 0;
}

void region_push(uint32_t name, enum stack stack) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    if (here && !begun(here, name, stack)) here->unpushed[stack]++;
}

/* Regions may end in another order than they began (generators, coroutines): the others stay open. */
static bool close_region(struct lane *here, uint32_t serial, struct record *record) {
    uint64_t now = monotonic();
    uint32_t at = here ? here->depth : 0;
    while (at && here->regions[at - 1].serial != serial) at--;
    if (!at) return false;
    *record = of_region(here, &here->regions[at - 1], HOST_REGION);
    record->end = now;
    useful_until(here, now);
    if (sums_of(here)) aggregate_left(here->aggregate, here->regions[at - 1].node, now - record->start);
    memmove(&here->regions[at - 1], &here->regions[at], (here->depth - at) * sizeof *here->regions);
    here->depth--;
    if (sums_of(here)) {
        name_paths(here, at - 1);
        aggregate_moved(here->aggregate, path_of(here), here->call, now, false);
    }
    useful_since(here, now);
    return true;
}

void region_end(uint32_t serial) {
    struct record record;
    if (!serial) return;
    bool sums = mine && sums_of(mine);
    if (!close_region(mine, serial, &record)) costs.unmatched++;
    else if (!sums && recording_wanted() && lane()) append(mine->ring, &record);
}

static uint32_t innermost(const struct lane *here, enum stack stack) {
    uint32_t at = here->depth;
    while (at && here->regions[at - 1].stack != stack) at--;
    return at ? here->regions[at - 1].serial : 0;
}

void region_pop(enum stack stack) {
    uint32_t serial = mine ? innermost(mine, stack) : 0;
    if (mine && mine->unpushed[stack]) mine->unpushed[stack]--;
    else if (serial) region_end(serial);
    else costs.unmatched++;
}

/* --- what it costs --- */

enum { CALLS = 251, ROUNDS = 5, DUMMY = 1 << 30 };
_Static_assert(2 * CALLS < ROOM / 2, "the ring is never half full, when the writer would be woken");
static struct host_costs measured;
static pthread_once_t measuring = PTHREAD_ONCE_INIT;

static int ascending(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* The mean of the middle half: now and then the system takes the processor away, and clocks may step by more than a call takes. */
static uint64_t typical(uint64_t *values, size_t count) {
    uint64_t sum = 0;
    qsort(values, count, sizeof *values, ascending);
    for (size_t i = count / 4; i < count - count / 4; i++) sum += values[i];
    return sum / (count - count / 4 * 2);
}

static void dummy_calls(struct lane *dummy) {
    for (int i = 0; i < CALLS; i++) {
        struct lane *here = recording_wanted() && rings_mine() ? dummy : NULL; /* as `lane` asks */
        if (here) wait_begin(here, DUMMY, false), wait_end(here);
    }
}

static void dummy_regions(struct lane *dummy) {
    struct record record;
    for (uint32_t i = 1; i <= CALLS && region_room(dummy); i++) {
        open_region(dummy, 1, i, BY_SERIAL);
        if (close_region(dummy, i, &record)) append(dummy->ring, &record);
    }
}

/* Records of some kind follow one another, with or without others in between. */
static struct host_costs of_records(const struct ring *ring, enum host_kind kind) {
    uint64_t within[CALLS], between[CALLS], last = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < ring->head && count < CALLS; i++) {
        const struct record *record = &ring->records[i];
        if (record->kind != kind) continue;
        within[count] = record->end - record->start;
        between[count++] = last ? record->start - last : 0;
        last = record->end;
    }
    return count ? (struct host_costs){typical(within, count), typical(between, count), 0, 0, 0} : (struct host_costs){0};
}

/* The least of a few: the sums of calls don't tell one that was interrupted. */
static void measure_sums(struct lane *dummy, struct ring *ring) {
    if (!(dummy->aggregate = aggregate_new())) return;
    dummy->life = rings_mine();
    dummy->sums = true;
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        aggregate_begin(dummy->aggregate, &ring->sums, 0, monotonic(), 0);
        dummy_calls(dummy);
        uint32_t call = ring->sums.used - 1;
        uint64_t whole = ring->sums.last - ring->sums.began, within = ring->sums.rows[call].time;
        memset(&ring->sums, 0, sizeof ring->sums);
        if (whole >= least || whole < within) continue;
        least = whole;
        measured.sum_within = within / CALLS, measured.sum_between = (whole - within) / CALLS;
    }
    free(dummy->aggregate);
}

/* Of calls that do nothing, what lies within their records is the recorder's, and so is what lies between them. */
static void measure(void) {
    struct ring *ring = calloc(1, sizeof *ring);
    struct lane dummy = {.ring = ring, .since = monotonic(), .anchor = 1, .paid = UINT64_MAX / 2};
    if (!ring) return;
    dummy_regions(&dummy);
    struct host_costs region = of_records(ring, HOST_REGION);
    ring->head = 0;
    dummy_calls(&dummy);
    measured = of_records(ring, HOST_MPI);
    measured.region = region.within + region.between;
    measure_sums(&dummy, ring);
    free(dummy.regions);
    free(ring);
}

struct host_costs host_costs(void) {
    pthread_once(&measuring, measure);
    return measured;
}

/* --- into the file --- */

/* What is written is nobody's in the ring any more; who is killed in between has said which chunk it was. */
static void write_part(struct ring *ring, uint32_t from, uint32_t count) {
    uint32_t at = from % ROOM, first = count < ROOM - at ? count : ROOM - at;
    struct iovec parts[2] = {{&ring->records[at], first * sizeof *ring->records}, {ring->records, (count - first) * sizeof *ring->records}};
    bool named = names_write();
    atomic_store(&ring->at, 0);
    atomic_store(&ring->next, from + count);
    atomic_store(&ring->at, recording_size());
    if (named && recording_add(HOST, 0, parts, 2)) costs.records += count;
    else costs.lost += count;
    atomic_store_explicit(&ring->tail, from + count, memory_order_release);
}

void host_write(void) {
    if (!rings_mine()) return;
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) {
        struct ring *ring = lane->ring;
        uint32_t tail = ring ? atomic_load_explicit(&ring->tail, memory_order_relaxed) : 0;
        uint32_t count = ring ? atomic_load_explicit(&ring->head, memory_order_acquire) - tail : 0;
        if (count) write_part(ring, tail, count);
    }
    if (costs.records * sizeof(struct record) >= settings.events) enough = true;
}

/* Up to three records of what a thread waits for: those of a team that has ended wait for another. */
static int still_waits(const struct lane *lane, struct record records[3]) {
    uint64_t start = atomic_load_explicit(&lane->wait_start, memory_order_acquire), now = monotonic();
    uint32_t name = atomic_load_explicit(&lane->wait_name, memory_order_acquire);
    struct waits waits = lane->team ? waits_of(lane, name, start, 0, now) : (struct waits){{name}, {now, now, now}};
    if (!start || start != atomic_load_explicit(&lane->wait_start, memory_order_relaxed)) return 0;
    int count = 0;
    for (int i = 0; i < 3; start = waits.until[i++])
        if (waits.until[i] > start)
            records[count++] = (struct record){.start = start, .end = waits.until[i], .thread = lane->thread, .name = waits.calls[i], .kind = HOST_WAITING};
    return count;
}

/* A program that is killed in a call never tells of it; so it is told meanwhile. Whoever writes inside a call of its own doesn't hang in it,
 * unless the program is ending. */
void host_write_waiting(bool ending) {
    struct record records[3];
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) {
        int count = lane != mine || ending ? still_waits(lane, records) : 0;
        if (count && names_write()) recording_add(HOST, 0, &(struct iovec){records, (size_t)count * sizeof *records}, 1);
    }
}

/* In the child of a fork: what isn't written yet is the parent's to write, and so are its open regions. The other threads are gone. */
void host_forked(void) {
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) {
        no_regions(lane);
        lane->waits = 0;
        lane->wait_start = lane->team = 0;
        lane->sums = false;
        lane->call = 0;
        lane->useful = NULL;
        lane->looked_at = false;
        lane->presence = (struct presence){0};
        rings_give_back(lane->ring);
        lane->ring = NULL;
        lane->life = 0;
        lane->taken = false;
    }
    rings_closed(), host_closed();
    if (mine) pthread_setspecific(ending, NULL);
    mine = NULL;
}
