/* The recorder that runs inside a program: what its parts know of each other.
 *
 *   entry.c      how it comes in (injection, preload, attach) and goes out (exit, fork, detach); the exported functions
 *   recording.c  the file: chunks, appended whole         facts.c     the JSON in it: the process, problems, costs
 *   rings.c      where threads put their records first: in memory that outlives the process
 *   aggregate.c  sums in the place of records, once there are as many of these as were asked for
 *   host.c       what the program's threads do: regions, MPI calls, calls of CUDA        names.c   their names, as numbers
 *   instructions.c  what they do while they are useful: instructions, cycles
 *   processor.c  how long they were on a processor
 *   openmp.c     OpenMP's threads, by OMPT: when they wait for one another
 *   nvtx.c       NVTX ranges, where CUPTI doesn't record them
 *   cupti_calls.c  libcupti, found, subscribed to and called
 *   activity.c   CUPTI's activity records                 pool.c      the buffers that CUPTI fills
 *   texts.c      the names that CUPTI's records point to  callbacks.c a callback for each call of CUDA
 *   demangled.c  kernels' names as people write them      counters.c  counters of each kernel, in place of tracing
 *   perfworks.c  the libraries that libcupti counts with                stalls.c  sampled program counters, in place of tracing
 *   threads.c    a thread that writes, a thread that asks CUPTI for what it has
 *   nccl.c       a profiler plugin of NCCL: its collectives
 *   mpi.c        MPI's functions, by name, around the library's own       text.c  JSON
 *   settings.c   the environment, clocks, waiting
 *
 * Nothing here may harm the program: no function fails, prints (but for ULLAGE_DEBUG) or waits without end, errno stays as it was,
 * memory is bounded, and what can't be recorded is counted. Locks are taken in this order: recording, names or pool, problems. */
#ifndef ULLAGE_RECORDER_H
#define ULLAGE_RECORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define EXPORTED __attribute__((visibility("default")))

enum chunk { INFO = 1, BUFFER = 2, NAMES = 3, HOST = 4, DROPPED = 5, CLOCKS = 6, END = 7, IMAGE = 9, SUMS = 10, SAMPLES = 11,
             CUBIN = 12, SASS = 13, NCCL = 20 }; /* as in chunks.py */
enum host_kind { HOST_MPI = 1, HOST_REGION = 2, HOST_OPEN = 3, HOST_API = 4, HOST_OVERHEAD = 5, HOST_PAUSE = 6, HOST_WAITING = 7,
                 HOST_SUM = 8, HOST_THREAD = 9, HOST_OFF = 10 };

/* What the recorder itself cost: goes into END. */
struct costs {
    _Atomic uint64_t records, buffers, bytes, dropped;         /* host records, activity buffers and their bytes; CUPTI's own losses */
    _Atomic uint64_t sums, extra, folded; /* records of sums; records beside them; calls and regions that were summed as those around them */
    _Atomic uint64_t lost, lost_bytes, refused, unmatched;     /* host records; bytes of chunks; buffers; ends of regions never begun */
    _Atomic uint64_t cpu_readings; /* of a thread's CPU clock, by the thread itself */
    _Atomic uint64_t flushes, flush_ns, writer_ns, callbacks, callback_ns, api_callbacks, memory, memory_peak;
};
extern struct costs costs;

/* settings.c: what the environment asks for (`ullage run` sets it); clocks in ns; waiting in ms */
enum { PLACE = 4096, LIST = 2048 };
struct settings {
    char folder[PLACE]; /* ULLAGE_RECORD: without it nothing is done */
    char cupti[PLACE];  /* ULLAGE_CUPTI: its library */
    char next[PLACE];   /* ULLAGE_NEXT_INJECTION: another tool's library, that ours stands in the place of */
    char kinds[LIST], names[LIST], callbacks[64]; /* ULLAGE_KINDS "10,1"; ULLAGE_NAMES "10:112"; ULLAGE_CALLBACKS "runtime,driver" */
    char left_out[LIST]; /* ULLAGE_CALLS_LEFT_OUT "4:7+9,5:20": kinds of calls, and of each the calls that are not recorded */
    uint64_t buffer, memory, reserve; /* bytes of a buffer, of all buffers, and those that stay free on the disk */
    uint64_t device_memory; /* bytes of each context's device that CUPTI may take for its buffers; 0: as many as it takes by itself */
    uint64_t events; /* bytes of host records; what comes later is summed up */
    uint64_t flush, deadline; /* ms between two flushes; ms after which CUPTI is no longer waited for */
    int rank, ranks, local_rank; /* -1: not told */
    char instructions[64]; /* ULLAGE_INSTRUCTIONS: perf events in their place "type:config,type:config"; "0": none; "": the processor's */
    enum { NVTX_IGNORED, NVTX_BY_CUPTI, NVTX_BY_US } nvtx; /* ULLAGE_NVTX; what CUPTI doesn't take is ours */
    bool openmp; /* ULLAGE_OPENMP: whether the recorder is a tool of its runtime */
    enum { NCCL_IGNORED, NCCL_CALLS, NCCL_CHANNELS } nccl; /* ULLAGE_NCCL; of its collectives the calls, or the GPU's time too */
    bool processor; /* ULLAGE_CPU_CLOCK: whether time off the CPU is told from useful time */
    bool make; /* ULLAGE_MAKE: whether the folder is made where there is none */
    _Atomic bool debug;
};
extern struct settings settings;
void settings_read(void);
uint64_t monotonic(void);
uint64_t realtime(void);
bool lock_within(pthread_mutex_t *mutex, uint64_t milliseconds);
bool wait_within(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t milliseconds);

/* text.c: a text that grows; without memory it stays as it is, and `failed` */
struct text {
    char *at;
    size_t length, room;
    bool failed;
};
void text_bytes(struct text *text, const void *bytes, size_t length);
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_quoted(struct text *text, const char *string); /* as a string of JSON; what is no UTF-8 becomes U+FFFD */
void text_free(struct text *text);

/* recording.c: all but `recording_wanted`, `recording_to` and `recording_started` with the lock held */
bool recording_wanted(void);
bool recording_to(const char *folder);
bool recording_lock(void);
void recording_unlock(void);
void recording_started(void); /* this process has something to record; without the lock, once */
bool recording_open(void); /* makes the file if there is none yet */
bool recording_is_open(void);
bool recording_add(enum chunk type, uint16_t flags, const struct iovec *parts, int count);
void recording_clocks(void);
void recording_close(void);
const char *recording_path(void);
int recording_moved_up(int descriptor); /* to a high number, that no program takes for its own */
void recording_forked(void);
uint64_t recording_size(void);
bool recording_disk_has(int descriptor, uint64_t total); /* and what is kept free besides; any descriptor on the disk will do */

/* facts.c */
void problem(const char *what, int code, const char *detail);
void facts_loaded(void);            /* the process starts */
bool facts_begin(void);             /* what is known of the process before the first chunk */
void facts_ranks(int rank, int ranks);
void facts_cupti(struct text *json); /* members of an object, to be written; takes the text */
void facts_changed(void);
void facts_of_threads(bool ending); /* what they did until now */
void facts_closed(void);
bool facts_write(void);
void facts_end(void);
void facts_forked(void);

/* names.c */
enum { NAME_LONGEST = 4096 };
uint32_t name_number(const char *name); /* the same for the same name, as long as the process lives */
bool names_write(void);                 /* those that the file doesn't have yet */
void names_changed(void);
void names_into_rings(void); /* those that the file doesn't have yet */
void names_before_fork(void);
void names_after_fork(bool child);

/* rings.c */
enum { ROOM = 1024 };
struct record { /* HOST of chunks.py */
    uint64_t start, end;
    uint32_t thread, name;
    uint16_t kind, depth;
    uint32_t serial;
    uint64_t bytes;
};
_Static_assert(sizeof(struct record) == 40, "as in chunks.py");
enum { ROWS = 512, BINS = 24, SHORTEST = 4 }; /* the first bin is of what took less than 2^(SHORTEST + 1) ns */
enum { NOBODY = UINT32_MAX, OFF_CPU = UINT32_MAX - 1 }; /* in place of a call: there is no thread; it is not on a processor */
struct row { /* as in rings.py */
    _Atomic uint32_t node, call; /* numbers of names: the regions that the thread is in (0: none), and the call (0: none, NOBODY: no thread) */
    _Atomic uint64_t time, count, longest; /* ns; calls, or times that the region began; of a call, or a region with all that is in it */
    _Atomic uint64_t histogram[BINS];
};
struct sums { /* of one thread since it records no events any more; those of several that lived one after another. As in rings.py */
    _Atomic uint32_t version; /* odd while the thread changes them */
    _Atomic uint32_t used, current; /* rows; the one whose time passes */
    _Atomic uint32_t after; /* and the one whose time passes first, until … */
    _Atomic uint64_t until; /* … then: the recorder is not done with a call when it has ended */
    _Atomic uint64_t began, last; /* 0: there are none; until when times are in the rows */
    _Atomic uint32_t thread, unused;
    uint64_t more[2];
    struct row rows[ROWS];
    _Atomic uint64_t off[ROWS]; /* ns of the rows' times in which the thread was not on a processor */
};
_Static_assert(sizeof(struct sums) == 64 + ROWS * (224 + 8), "as in rings.py");
struct ring { /* as in rings.py */
    _Atomic uint32_t head, tail; /* records put in, by the thread; records written, under the recording's lock */
    _Atomic uint32_t next;       /* what the tail will be when the chunk is there that begins at … */
    uint32_t unused;
    _Atomic uint64_t at;         /* … this byte of the recording */
    uint64_t more[5];
    struct record records[ROOM];
    struct sums sums;
};
uint32_t rings_mine(void); /* 0 where they are another process's; changes when those that there are are done with */
struct ring *rings_add(void); /* NULL without memory */
void rings_give_back(struct ring *ring);
void rings_name(uint64_t number, const char *text, uint32_t length);
void rings_forget_names(void);
void rings_remove(void);
void rings_closed(void);

/* host.c */
enum work { SOON, PERIODIC, ASKED }; /* why it is done: a ring fills, it is time, somebody wants to know */
struct lane;
struct lane *lane(void); /* this thread's, NULL without memory */
struct lane *lane_if_any(void); /* NULL as long as the thread had nothing to record */
void host_record(struct lane *lane, enum host_kind kind, uint32_t name, uint64_t start, uint64_t end, uint64_t bytes);
void host_summed(struct lane *lane); /* from now on, where there are enough records */
enum stack { BY_SERIAL, PUSHED, NVTX_PUSHED, STACKS }; /* whose a region is: one ended by its number, or the innermost of … */
uint32_t region_begin(const char *name);
void region_end(uint32_t serial);
void region_push(uint32_t name, enum stack stack);
void region_pop(enum stack stack); /* ends the innermost region of this thread that was pushed so */
uint32_t region_serial(void);      /* a new number */
void host_range(const struct record *record); /* as it is: of whichever thread */
void wait_begin(struct lane *lane, uint32_t name, bool edge); /* a call that waits for other processes; MPI's first and last are its edges */
void wait_end(struct lane *lane);
void team_wait_begin(struct lane *lane, uint32_t name, uint64_t team); /* a call that waits for a team's other threads, … */
void team_wait_end(struct lane *lane, uint64_t next); /* … and, once that has ended, for another one, which began `next`; 0: for none */
void host_thread(struct lane *lane, uint64_t began, uint64_t ended); /* one that a runtime made; 0: it goes on */
struct host_costs { /* ns of a call of MPI, within its record and after it, and of a region; of a call that is summed up, and after it */
    uint64_t within, between, region, sum_within, sum_between;
};
struct host_costs host_costs(void); /* measured once */
void host_write(void); /* with the recording's lock held */
void host_write_waiting(bool ending); /* the calls that are still open; likewise */
void host_look(void);           /* which threads are off the CPU: until now into the file; likewise */
void host_cut(enum work work);  /* sums until now into the file, if it is time; likewise */
void host_tell_sums(void);      /* all that was counted; likewise */
void host_closed(void);         /* the next recording begins with events */
void host_forked(void);

/* processor.c: CPU clocks of threads, in ns */
struct presence { uint64_t at, cpu; }; /* when a thread's CPU clock was read last (0: never), and what it said */
enum { EARNED_IN = 256, READING_AHEAD = 1000000 /* ns */ }; /* a reading is earned in so many times its cost; so much may be spent before */
uint64_t cpu_clock_cost(void);  /* of a reading, 0: there is no such clock; measured once, … */
extern uint64_t cpu_clock_ns;   /* … and known from then on */
void presence_loaded(void);
struct presence presence_at_start(void); /* of the main thread */
struct presence presence_now(uint64_t now); /* of this thread */
uint64_t presence_off(const struct presence *before, const struct presence *after); /* for how long the thread was on no processor */
bool cpu_clock_of(uint32_t thread, uint64_t *cpu); /* by any thread of the process */
void presence_begins(void);               /* a recording does */
void presence_facts(struct text *json);

/* aggregate.c: what a thread does, added up as it does it */
struct region { uint64_t start; uint32_t name, serial, node; enum stack stack; };
struct path { const struct region *regions; uint32_t depth; }; /* the open regions, the innermost last */
struct aggregate; /* what finds the rows, and how much of them is written */
struct aggregate *aggregate_new(void); /* NULL without memory */
void aggregate_begin(struct aggregate *of, struct sums *sums, uint32_t thread, uint64_t now, uint64_t between);
void aggregate_after(struct aggregate *of, struct path path, uint32_t call, uint64_t ended); /* before they began */
uint32_t aggregate_node(struct aggregate *of, uint32_t parent, uint32_t name);
void aggregate_call(struct aggregate *of, struct path path, uint32_t call, uint64_t now, uint64_t team);
struct waits { uint32_t calls[3]; uint64_t until[3]; }; /* for a team, for none, for the next one */
void aggregate_waited(struct aggregate *of, struct path path, const struct waits *waits, uint64_t start);
void aggregate_called(struct aggregate *of, struct path path, uint32_t call, uint64_t start, uint64_t now);
void aggregate_past(struct aggregate *of, struct path path, uint32_t call, uint64_t start, uint64_t end);
void aggregate_moved(struct aggregate *of, struct path path, uint32_t call, uint64_t now, bool entered);
void aggregate_left(struct aggregate *of, uint32_t node, uint64_t took);
void aggregate_until(struct aggregate *of, uint64_t now); /* nothing changes */
void aggregate_seen(struct aggregate *of, const struct presence *seen, uint64_t now, uint64_t off); /* of what passed since the last change */
void aggregate_alone(struct aggregate *of, uint64_t now); /* no thread is here */
bool aggregate_write(struct aggregate *of, uint64_t at); /* with the recording's lock held, these two too */
bool aggregate_tell(struct aggregate *of);

/* instructions.c: `of` may be NULL */
struct useful; /* what a thread does while it is useful */
void useful_loaded(void);
struct useful *useful_mine(void); /* NULL where nothing of this thread is counted */
struct useful *useful_of_thread(void);
void useful_thread_ends(struct useful *of);
void useful_ends(struct useful *of, uint64_t now); /* the thread waits, or is in a call that is not useful; they nest */
void useful_begins(struct useful *of);
void useful_from_now(void);
void useful_is_over(void);
void useful_until_now(void);
void useful_facts(struct text *json);
void useful_forked(void);

/* openmp.c */
enum { NO_TEAM = 1 }; /* one that ended long ago */
uint64_t team_ended(uint64_t team); /* 0: it has not */
uint32_t openmp_idle(void), openmp_forks(void); /* names of waiting in no team, and of handing work out */
void openmp_facts(struct text *json);

/* nvtx.c */
int nvtx_start(void *export_table); /* 0 where NVTX has no place for our functions */
void nvtx_forked(void);

/* pool.c: buffers for CUPTI */
struct buffer {
    struct buffer *next;
    uint8_t *bytes;
    size_t size, valid;
    uint64_t context, stream;
};
void pool_begin(size_t size, uint64_t bound, bool zeroed);
uint8_t *pool_take(size_t *size);
void pool_completed(uint8_t *bytes, size_t valid, uint64_t context, uint64_t stream);
struct buffer *pool_next(void); /* the oldest completed one; NULL when there is none */
void pool_back(struct buffer *buffer);
void pool_forked(void);

/* demangled.c */
char *demangled(const char *name, size_t length);

/* texts.c, with the recording's lock held */
typedef int next_record(uint8_t *buffer, size_t valid, uint8_t **record);
void texts_at(const char *setting); /* "kind:offset+offset,…" */
bool texts_write(next_record *next, struct buffer *buffer);
void texts_changed(void);

/* activity.c */
bool activity_start(bool injected);
int activity_pause(bool paused);
void activity_context_made(void);
void activity_pause_ends(void);     /* with the recording: a pause is recorded when it is over */
void activity_flush(bool forced);   /* the call of CUPTI itself: only a thread that may wait makes it */
bool activity_flushed(bool forced); /* asks for it, and waits until the deadline */
void activity_write(void);          /* completed buffers and drops; with the recording's lock held */
void activity_finish(void);         /* detach: no call of CUPTI after it */
bool activity_running(void);
uint64_t activity_time(void);       /* CUPTI's time, 0 without CUPTI; with the recording's lock held */
void activity_forked(void);

/* callbacks.c */
void cuda_called(void *user, int domain, uint32_t id, const void *data);
void callbacks_detach(int (*finalize)(void)); /* at the next exit of a call */
bool callbacks_detached(void);                /* whether one came; none comes later */
void callbacks_watch_graphs(void);
bool callbacks_graphs(void); /* whether the program has launched or made CUDA graphs under CUPTI */
uint64_t callbacks_graphs_made(void); /* how many */

/* counters.c: in place of activity, where ULLAGE_COUNTERS asks for it */
bool counters_wanted(void);
bool counters_start(void *library, void *subscriber);
void counters_called(int domain, uint32_t id, const void *data);
void counters_finish(void); /* may wait for long */
void counters_forked(void);

/* stalls.c: in place of activity, where ULLAGE_STALLS asks for it */
bool stalls_wanted(void);
bool stalls_start(void *library, void *subscriber);
void stalls_called(int domain, uint32_t id, const void *data);
void stalls_flush(bool ending); /* may wait for long; nothing is sampled after the end */
void stalls_forked(void);

/* sass_metrics.c: in place of activity, where ULLAGE_SASS asks for it */
bool sass_wanted(void);
bool sass_start(void *library, void *subscriber);
void sass_called(int domain, uint32_t id, const void *data);
void sass_finish(void); /* may wait for long */
void sass_forked(void);

/* nccl.c */
void nccl_write(enum work work); /* with the recording's lock held; all that is known, if not SOON */
void nccl_closed(void);
void nccl_forked(void);

/* perfworks.c */
void perfworks_load(const void *function);  /* before libcupti, whose function it is, counts */
void perfworks_facts(struct text *json);     /* which they are: a member of an object, and a comma; nothing where none was loaded */

/* threads.c */
void threads_start(bool flusher);
void threads_wake(void);              /* the writer has work */
bool threads_flushed(bool forced);
void threads_stop(void);
bool threads_writing(void);
void threads_forked(void);

/* entry.c */
void recorder_work(enum work work); /* write what there is; the clocks too, if not SOON */
void recorder_needed(void);      /* the writer and the handler at exit, once */
void recorder_flush(void);
void recorder_say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* ULLAGE_DEBUG=1 only */

#endif
