/* A profiler plugin of NCCL: when each rank's program came to each collective, and when its GPU was in it, as NCCL itself saw it.
 *
 * NCCL_PROFILER_PLUGIN names this library; NCCL 2.27 and later look for `ncclProfiler_v4` in it. The interface is that of
 * ext-profiler/example/nccl/profiler_v4.h and profiler.h of NCCL 2.27, declared here by its facts. NCCL calls `init` for each communicator,
 * `start` and `stop` around the enqueueing of a collective (in the program's thread; of a CUDA graph, in a callback of each launch), and,
 * from a thread of its own, `start`, `state` and `stop` for each channel of its kernel, whose parent is the collective's handle: that may
 * long have been stopped. A handle is a number, not an address: one that is no longer known is harmless. No function ever fails.
 *
 * Collectives are rows of a table until they are over and written; one that is not over is told as it stands, and told again later by the
 * same `serial`. Once `settings.events` bytes are written they are only counted. The table's lock is taken after the recording's and never
 * waits for it; the names' lock may be taken after it. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 1 << 0, COLLECTIVE = 1 << 1, KERNEL_CHANNEL = 1 << 6 }; /* ncclProfileGroup, ncclProfileColl, ncclProfileKernelCh */
enum { KERNEL_CHANNEL_STOP = 22 };                                   /* ncclProfilerKernelChStop */
enum { SUCCESS = 0 };                                                /* ncclSuccess */
enum { ROWS_KEPT = 4096, COMMUNICATORS = 4096 };                     /* at once; powers of two, for their numbers wrap */

struct event { /* ncclProfilerEventDescr_v4_t */
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t sequence;
            const char *function;
            const void *from;
            void *to;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algorithm, *protocol;
        } collective;
        struct {
            uint8_t channel;
            uint64_t timer; /* ns of the GPU's globaltimer */
        } kernel;
    };
};
_Static_assert(sizeof(struct event) == 104 && offsetof(struct event, collective) == 24, "as in profiler_v4.h");
_Static_assert(offsetof(struct event, collective.root) == 64 && offsetof(struct event, collective.algorithm) == 88, "as in profiler_v4.h");
_Static_assert(offsetof(struct event, kernel.timer) == 32, "as in profiler_v4.h");

union state { /* ncclProfilerEventStateArgs_v4_t */
    uint64_t timer;
};

struct profiler { /* ncclProfiler_v4_t */
    const char *name;
    int (*init)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void (*log)(void));
    int (*start)(void *context, void **handle, struct event *event);
    int (*stop)(void *handle);
    int (*state)(void *handle, int state, union state *arguments);
    int (*finalize)(void *context);
};

struct collective { /* NCCL of chunks.py */
    uint64_t communicator, sequence;
    uint64_t start, end, gpu_start, gpu_end, count; /* times: of the monotonic clock, and of the GPU's own; 0: not told */
    uint32_t name, function, datatype, algorithm, protocol, serial;         /* all but the last numbers of names */
    int32_t rank, ranks, root, nodes;
    uint16_t channels, started, ended, unused;
};
_Static_assert(sizeof(struct collective) == 104, "as in chunks.py");

struct communicator {
    uint64_t hash;
    uint32_t serial, name; /* serial 0: none */
    int32_t rank, ranks, nodes;
};

struct kept {
    struct collective row; /* serial 0: none */
    bool fresh;            /* something is not told yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *_Atomic rows; /* NULL until NCCL comes */
static struct collective *batch;
static struct communicator communicators[COMMUNICATORS];
static uint32_t last_row, last_communicator, waiting; /* waiting: fresh rows */
static int *mask;     /* NCCL's own, of all communicators */
static bool channels; /* GPU times are asked for */
static bool told; /* the counts; under the recording's lock */
static bool enough;
static struct { uint64_t seen, counted, lost, astray, communicators, written; } counts;

/* --- handles: what they are of in the lowest two bits, then a channel, then a number --- */

enum { OF_GROUP = 1, OF_COLLECTIVE = 2, OF_KERNEL = 3 };

static void *handle_of(uint32_t serial, unsigned what) { return (void *)(((uintptr_t)serial << 2) | what); }
static unsigned what_of(const void *handle) { return (uintptr_t)handle & 3; }

static struct kept *row_of(const void *handle) {
    uint32_t serial = (uint32_t)((uintptr_t)handle >> 2);
    struct kept *kept = rows && serial ? &rows[serial % ROWS_KEPT] : NULL;
    if (kept && kept->row.serial == serial) return kept;
    counts.astray++;
    return NULL;
}

static void changed(struct kept *kept) {
    waiting += !kept->fresh;
    kept->fresh = true;
}

/* --- communicators --- */

static struct communicator *free_communicator(void) {
    for (int tries = 0; tries < COMMUNICATORS; tries++) {
        struct communicator *free = &communicators[++last_communicator % COMMUNICATORS];
        if (last_communicator && !free->serial) return free;
    }
    return NULL;
}

static bool has_table(void) {
    if (rows) return true;
    struct collective *for_batch = calloc(ROWS_KEPT, sizeof *for_batch);
    struct kept *made = for_batch ? calloc(ROWS_KEPT, sizeof *made) : NULL;
    if (!made) return free(for_batch), false;
    batch = for_batch, rows = made;
    return true;
}

static void *added_communicator(uint32_t name, uint64_t hash, int nodes, int ranks, int rank) {
    struct communicator *mine = has_table() ? free_communicator() : NULL;
    if (!mine) return NULL;
    *mine = (struct communicator){hash, last_communicator, name, rank, ranks, nodes};
    counts.communicators++;
    return (void *)(uintptr_t)last_communicator;
}

static struct communicator *communicator_of(const void *context) {
    uint32_t serial = (uint32_t)(uintptr_t)context;
    struct communicator *found = &communicators[serial % COMMUNICATORS];
    return serial && found->serial == serial ? found : NULL;
}

static int initialize(void **context, int *activate, const char *name, uint64_t hash, int nodes, int ranks, int rank, void (*log)(void)) {
    int before = errno;
    bool wanted = recording_wanted() && settings.nccl;
    (void)log;
    if (context) *context = NULL;
    if (activate) *activate = 0;
    if (wanted && context && activate) {
        recorder_needed();
        uint32_t number = name_number(name);
        pthread_mutex_lock(&lock);
        channels = settings.nccl == NCCL_CHANNELS && settings.events;
        if (!settings.events) enough = true;
        mask = activate;
        *context = added_communicator(number, hash, nodes, ranks, rank);
        *activate = COLLECTIVE | (channels && !enough ? KERNEL_CHANNEL : 0);
        pthread_mutex_unlock(&lock);
    }
    errno = before;
    return SUCCESS;
}

static int finalize(void *context) {
    pthread_mutex_lock(&lock);
    struct communicator *mine = communicator_of(context);
    if (mine) mine->serial = 0;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* --- collectives --- */

/* A row that was told may go where there is none free: what its GPU still does is not told then. */
static struct kept *free_row(void) {
    if (!++last_row) ++last_row;
    struct kept *kept = &rows[last_row % ROWS_KEPT];
    if (!kept->row.serial || !kept->fresh) return kept;
    counts.lost++;
    return NULL;
}

static void *begun(const struct communicator *mine, const struct event *event, const uint32_t names[4], uint64_t now) {
    struct kept *kept = free_row();
    if (!kept) return NULL;
    kept->row = (struct collective){
        .communicator = mine->hash, .sequence = event->collective.sequence, .start = now, .count = event->collective.count,
        .name = mine->name, .function = names[0], .datatype = names[1], .algorithm = names[2], .protocol = names[3], .serial = last_row,
        .rank = mine->rank, .ranks = mine->ranks, .root = event->collective.root, .nodes = mine->nodes,
        .channels = event->collective.channels};
    kept->fresh = false;
    changed(kept);
    return handle_of(last_row, OF_COLLECTIVE);
}

static void *collective_starts(void *context, const struct event *event) {
    uint64_t now = monotonic();
    const uint32_t names[4] = {name_number(event->collective.function), name_number(event->collective.datatype),
                               name_number(event->collective.algorithm), name_number(event->collective.protocol)};
    void *handle = NULL;
    pthread_mutex_lock(&lock);
    const struct communicator *mine = communicator_of(context);
    if (!mine || !rows) counts.astray++;
    else if (counts.seen++, enough) counts.counted++, *mask = COLLECTIVE;
    else handle = begun(mine, event, names, now);
    bool many = handle && waiting >= ROWS_KEPT / 4 && last_row % 64 == 0;
    pthread_mutex_unlock(&lock);
    if (many) threads_wake();
    return handle;
}

static void *channel_starts(const struct event *event) {
    void *handle = NULL;
    pthread_mutex_lock(&lock);
    struct kept *kept = what_of(event->parent) == OF_COLLECTIVE ? row_of(event->parent) : NULL;
    if (kept && event->kernel.timer) {
        if (!kept->row.gpu_start || event->kernel.timer < kept->row.gpu_start) kept->row.gpu_start = event->kernel.timer;
        kept->row.started++;
        changed(kept);
        handle = handle_of(kept->row.serial, OF_KERNEL);
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

/* NCCL asks for a group's handle, whatever was activated; some releases tell of no collective without one. */
static int start(void *context, void **handle, struct event *event) {
    int before = errno;
    if (!handle) return SUCCESS;
    *handle = NULL;
    if (!event || !recording_wanted()) return SUCCESS;
    if (event->type == GROUP) *handle = handle_of(1, OF_GROUP);
    else if (event->type == COLLECTIVE) *handle = collective_starts(context, event);
    else if (event->type == KERNEL_CHANNEL) *handle = channel_starts(event);
    errno = before;
    return SUCCESS;
}

static int stop(void *handle) {
    if (what_of(handle) != OF_COLLECTIVE) return SUCCESS;
    uint64_t now = monotonic();
    pthread_mutex_lock(&lock);
    struct kept *kept = row_of(handle);
    if (kept && !kept->row.end) kept->row.end = now, changed(kept);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int state(void *handle, int state, union state *arguments) {
    if (state != KERNEL_CHANNEL_STOP || what_of(handle) != OF_KERNEL || !arguments) return SUCCESS;
    pthread_mutex_lock(&lock);
    struct kept *kept = row_of(handle);
    if (kept && kept->row.ended < kept->row.started) {
        if (arguments->timer > kept->row.gpu_end) kept->row.gpu_end = arguments->timer;
        kept->row.ended++;
        changed(kept);
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

EXPORTED extern const struct profiler ncclProfiler_v4;
const struct profiler ncclProfiler_v4 = {"ullage", initialize, start, stop, state, finalize};

/* --- into the file --- */

static bool over(const struct collective *row) {
    return row->end && (!channels || (row->channels && row->ended >= row->channels));
}

static uint32_t gathered(bool all) {
    uint32_t count = 0;
    pthread_mutex_lock(&lock);
    bool pressed = waiting >= ROWS_KEPT / 4;
    for (uint32_t at = 0; waiting && at < ROWS_KEPT; at++) {
        struct kept *kept = &rows[(last_row + 1 + at) % ROWS_KEPT]; /* the oldest first */
        bool done = kept->row.serial && over(&kept->row);
        if (!kept->row.serial || !(done || all || pressed)) continue;
        if (kept->fresh) batch[count++] = kept->row, waiting--;
        kept->fresh = false;
        if (done) kept->row.serial = 0;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

static void tell(void) {
    struct text text = {0};
    pthread_mutex_lock(&lock);
    __typeof__(counts) now = counts;
    pthread_mutex_unlock(&lock);
    if (!now.seen && !(now.communicators && recording_is_open())) return; /* what NCCL doesn't use makes no file */
    text_add(&text, "{\"nccl\": {\"interface\": 4, \"communicators\": %" PRIu64, now.communicators);
    text_add(&text, ", \"collectives\": %" PRIu64 ", \"counted\": %" PRIu64, now.seen, now.counted);
    text_add(&text, ", \"lost\": %" PRIu64 ", \"astray\": %" PRIu64 "}}", now.lost, now.astray);
    if (!text.failed) told = recording_add(INFO, 0, &(struct iovec){text.at, text.length}, 1);
    text_free(&text);
}

static void written(uint32_t count, bool well) {
    pthread_mutex_lock(&lock);
    counts.written += well ? count : 0;
    counts.lost += well ? 0 : count;
    if (counts.written * sizeof *batch >= settings.events) enough = true;
    pthread_mutex_unlock(&lock);
}

/* With the recording's lock held, like what follows. */
void nccl_write(enum work work) {
    uint32_t count = gathered(work != SOON);
    if (count) written(count, names_write() && recording_add(NCCL, 0, &(struct iovec){batch, count * sizeof *batch}, 1));
    if (rows && (!told || work == ASKED)) tell();
}

/* The next recording has its own rows and counts; communicators go on. */
void nccl_closed(void) {
    pthread_mutex_lock(&lock);
    if (rows) memset(rows, 0, ROWS_KEPT * sizeof *rows);
    memset(&counts, 0, sizeof counts);
    waiting = 0;
    told = enough = false;
    pthread_mutex_unlock(&lock);
}

/* NCCL's communicators are the parent's. The memory is not given back: another thread may have been growing it. */
void nccl_forked(void) {
    pthread_mutex_init(&lock, NULL);
    rows = NULL;
    batch = NULL;
    memset(communicators, 0, sizeof communicators);
    memset(&counts, 0, sizeof counts);
    waiting = 0;
    told = enough = false;
}
