/* Instructions and cycles of a thread while it is useful, by the processor's counters (perf events), where the system lets a program have
 * them. They are read where useful time begins and ends. A reading is a call of the system, so where these follow one another so closely
 * that readings would take more than a SHAREth of the thread's time, stretches of useful time are counted one after another until BUDGET
 * is spent, then none for as long as it takes to earn it again. What is counted is told with the useful time that it was counted in.
 *
 * The program may close descriptors that it doesn't know, and open others by their numbers: before each reading the counter says that it
 * is ours. No header of the system is needed, which C libraries come without. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHARE = 64, BUDGET = 1000000 /* ns */, MOST_THREADS = 128 };
enum { GROUP = 1 << 3, TIMES = 1 << 0 | 1 << 1 };          /* PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING */
enum { NO_KERNEL = 1 << 5, NO_HYPERVISOR = 1 << 6 };       /* bits of perf_event_attr: what any program may count */
#define ASK_ID _IOR('$', 7, uint64_t *)                    /* PERF_EVENT_IOC_ID */

struct attributes { /* perf_event_attr, as its first version was: all systems know it */
    uint32_t type, size;
    uint64_t config, period, sample, format, flags;
    uint32_t wake, breakpoint;
    uint64_t address;
};
_Static_assert(sizeof(struct attributes) == 64, "PERF_ATTR_SIZE_VER0");

struct values { uint64_t count, enabled, running, instructions, cycles; }; /* as the system gives a group of two */

struct useful {
    struct useful *next;
    _Atomic bool taken;
    int descriptors[2]; /* of instructions, of cycles; -1: none */
    uint64_t id;        /* of the first one */
    uint32_t calls;     /* how deep the thread is in calls that are not useful */
    bool counts;        /* what it does is counted: since `start`, when the counters had these values */
    uint64_t start;
    struct values at;
    int64_t budget;     /* ns that readings may take, as of … */
    uint64_t earned;    /* … then */
    uint64_t rests;     /* until then nothing is counted; 0: it is */
    _Atomic uint64_t instructions, cycles, time; /* counted, and in how many ns; since … */
    _Atomic uint32_t epoch;                      /* … the `epoch` in which they were */
};

static _Atomic(struct useful *) all; /* grows only */
static struct useful first = {.descriptors = {-1, -1}}; /* the main thread's, which counts before it records anything */
static _Thread_local struct useful *mine;
static _Atomic uint32_t threads, epoch;
static _Atomic int refused; /* why nobody counts: an errno */
static _Atomic bool over;   /* MPI_Finalize was called: what follows is no part of the run */

#define GET(of) atomic_load_explicit(&(of), memory_order_relaxed)
#define PUT(of, value) atomic_store_explicit(&(of), value, memory_order_relaxed)

/* --- the system's side --- */

static int opened(uint32_t type, uint64_t config, int leader) {
    struct attributes attributes = {.type = type, .size = sizeof attributes, .config = config, .format = GROUP | TIMES,
                                    .flags = NO_KERNEL | NO_HYPERVISOR};
    enum { CLOSE_ON_EXEC = 1 << 3 }; /* PERF_FLAG_FD_CLOEXEC, Linux 3.14 */
    int found = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, leader, CLOSE_ON_EXEC);
    if (found < 0 && errno == EINVAL && (found = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, leader, 0)) >= 0)
        fcntl(found, F_SETFD, FD_CLOEXEC);
    return found < 0 ? found : recording_moved_up(found);
}

static bool is_ours(const struct useful *of) {
    uint64_t id = 0;
    return of->descriptors[0] >= 0 && ioctl(of->descriptors[0], ASK_ID, &id) == 0 && id == of->id;
}

/* Not by the C library's `read`, where the thread could be cancelled. */
static bool has_read(struct useful *of, struct values *values) {
    int before = errno;
    bool done = is_ours(of) && syscall(SYS_read, of->descriptors[0], values, sizeof *values) == (long)sizeof *values && values->count == 2;
    if (!done) of->descriptors[0] = of->descriptors[1] = -1; /* whoever took it closed it */
    errno = before;
    return done;
}

/* The second one's number may be another's by now as well: it goes when the process does, unless the first one is still ours. */
static void closed(struct useful *of) {
    if (is_ours(of)) close(of->descriptors[0]), close(of->descriptors[1]);
    of->descriptors[0] = of->descriptors[1] = -1;
    of->counts = false;
}

static bool events_asked_for(uint32_t type[2], uint64_t config[2]) {
    const char *asked = settings.instructions;
    type[0] = type[1] = 0, config[0] = 1, config[1] = 0; /* PERF_TYPE_HARDWARE: instructions, cycles */
    return !*asked || sscanf(asked, "%" SCNu32 ":%" SCNu64 ",%" SCNu32 ":%" SCNu64, &type[0], &config[0], &type[1], &config[1]) == 4;
}

static bool begun(struct useful *of) {
    uint32_t type[2];
    uint64_t config[2];
    if (!events_asked_for(type, config)) return false;
    if (GET(threads) >= MOST_THREADS) return false;
    of->descriptors[0] = opened(type[0], config[0], -1);
    of->descriptors[1] = of->descriptors[0] >= 0 ? opened(type[1], config[1], of->descriptors[0]) : -1;
    if (of->descriptors[1] >= 0 && ioctl(of->descriptors[0], ASK_ID, &of->id) == 0) return ++threads;
    refused = errno ? errno : ENODEV;
    for (int i = 0; i < 2; i++)
        if (of->descriptors[i] >= 0) close(of->descriptors[i]);
    of->descriptors[0] = of->descriptors[1] = -1;
    return false;
}

/* --- what a thread does --- */

static void spend(struct useful *of, uint64_t now, uint64_t spent) {
    int64_t earned = of->budget + (int64_t)((now - of->earned) / SHARE) - (int64_t)spent;
    of->earned = now, of->budget = earned < BUDGET ? earned : BUDGET;
    if (of->budget < 0) of->rests = now + (uint64_t)(BUDGET - of->budget) * SHARE;
}

static void count_on(struct useful *of) {
    uint64_t before = monotonic();
    of->counts = has_read(of, &of->at);
    of->start = monotonic();
    spend(of, of->start, of->start - before);
}

static void add(struct useful *of, const struct values *now, uint64_t time) {
    uint64_t enabled = now->enabled - of->at.enabled, running = now->running - of->at.running;
    if (!running || running > enabled) return;
    uint32_t present = GET(epoch);
    if (GET(of->epoch) != present) PUT(of->instructions, 0), PUT(of->cycles, 0), PUT(of->time, 0), PUT(of->epoch, present);
    PUT(of->instructions, GET(of->instructions) + (now->instructions - of->at.instructions));
    PUT(of->cycles, GET(of->cycles) + (now->cycles - of->at.cycles));
    PUT(of->time, GET(of->time) + (uint64_t)((double)time * (double)running / (double)enabled)); /* others may take turns with us */
}

static void count_until(struct useful *of, uint64_t now) {
    struct values values;
    of->counts = false;
    if (!has_read(of, &values)) return;
    if (now > of->start) add(of, &values, now - of->start);
    spend(of, now, monotonic() - now);
}

void useful_begins(struct useful *of) {
    if (!of || !of->calls || --of->calls || of->rests || GET(over)) return;
    count_on(of);
}

void useful_ends(struct useful *of, uint64_t now) {
    if (!of || of->calls++) return;
    if (of->counts) count_until(of, now);
    else if (of->rests && now >= of->rests) of->rests = 0, of->budget = BUDGET, of->earned = now;
}

/* --- threads --- */

static struct useful *counting(struct useful *of) {
    if (!begun(of)) return NULL;
    of->calls = 0, of->rests = 0, of->budget = BUDGET, of->earned = monotonic();
    count_on(of);
    return mine = of;
}

static void listed(struct useful *of) {
    of->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &of->next, of)) {}
}

/* The main thread counts from the program's start. */
void useful_loaded(void) {
    int before = errno;
    if (recording_wanted() && syscall(SYS_gettid) == getpid() && counting(&first)) listed(&first);
    errno = before;
}

static struct useful *left_over(void) {
    for (struct useful *of = atomic_load(&all); of; of = of->next) {
        bool free = false;
        if (of != &first && atomic_compare_exchange_strong(&of->taken, &free, true)) return of;
    }
    return NULL;
}

static struct useful *added(void) {
    struct useful *of = calloc(1, sizeof *of);
    if (!of) return NULL;
    of->descriptors[0] = of->descriptors[1] = -1, of->taken = true;
    listed(of);
    return of;
}

/* From now on this thread counts as well; NULL where it can't. */
struct useful *useful_of_thread(void) {
    int before = errno;
    if (mine || refused || !atomic_load(&all)) return mine;
    struct useful *of = left_over();
    if (!of) of = added();
    if (of && !counting(of)) atomic_store(&of->taken, false);
    errno = before;
    return mine;
}

struct useful *useful_mine(void) { return mine; }

void useful_thread_ends(struct useful *of) {
    int before = errno;
    if (of && of->counts) count_until(of, monotonic());
    mine = NULL;
    if (of) {
        closed(of);
        threads--;
        atomic_store(&of->taken, false);
    }
    errno = before;
}

/* --- the run --- */

/* MPI_Init has returned: what was before is no part of the run. */
void useful_from_now(void) { epoch++; }
void useful_is_over(void) { over = true; }

/* A thread that goes on being useful has counted until now. */
void useful_until_now(void) {
    if (!mine || !mine->counts) return;
    count_until(mine, monotonic());
    if (!mine->rests) count_on(mine);
}

/* What is known, as a member of an object; nothing where nobody wanted to know. */
void useful_facts(struct text *json) {
    uint64_t instructions = 0, cycles = 0, time = 0;
    for (struct useful *of = atomic_load(&all); of; of = of->next)
        if (GET(of->epoch) == GET(epoch)) instructions += GET(of->instructions), cycles += GET(of->cycles), time += GET(of->time);
    if (time) text_add(json, "\"useful\": {\"instructions\": %" PRIu64 ", \"cycles\": %" PRIu64 ", \"time\": %" PRIu64 ", \"apart\": \"%s\"}",
                       instructions, cycles, time, strstr(settings.callbacks, "driver") ? "driver" : "");
    else if (refused) text_add(json, "\"useful\": {\"refused\": %d}", (int)refused);
}

/* In the child of a fork: the counters are the parent's, and its other threads are gone. */
void useful_forked(void) {
    for (struct useful *of = atomic_load(&all), *next; of; of = next) {
        next = of->next;
        closed(of);
        of->instructions = of->cycles = of->time = 0;
    }
    atomic_store(&all, NULL);
    mine = NULL;
    threads = 0;
    refused = 0;
    over = false;
    useful_loaded();
}
