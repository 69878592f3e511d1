/* OpenMP's threads, by what its runtime tells a tool (OMPT, OpenMP 5.0): when they wait for one another. LLVM's runtime and those made of it
 * (Intel's, AMD's, NVIDIA's, Arm's) have it, GNU's has not. No header of OpenMP is needed.
 *
 * A thread that the runtime made is idle while it is in no team; one that waits in a team (at a barrier, for tasks, for a lock) waits for the
 * others' work, but once its team has ended for the next one: runtimes let threads wait at a region's last barrier until another region
 * begins. From when that begins until the thread works in it, work is handed out.
 *
 * Another tool comes first: there can be only one. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEAMS = 4096, NESTED = 16, DEEPEST = 64, OUR_THREADS = 2, SHOWN = 96 };
enum { THREAD_BEGIN = 1, THREAD_END, PARALLEL_BEGIN, PARALLEL_END, TASK_SCHEDULE = 6, IMPLICIT_TASK = 7, SYNC_WAIT = 16,
       MUTEX_ACQUIRE = 26, MUTEX_ACQUIRED = 27 };                              /* ompt_callbacks_t */
enum { BEGINS = 1, ENDS = 2 };                                                 /* ompt_scope_endpoint_t */
enum { WORKER = 2 };                                                           /* ompt_thread_t */
enum { INITIAL_TASK = 1 };                                                     /* ompt_task_flag_t */
enum { COMPLETE = 1, YIELD, CANCEL, DETACH, SWITCH = 7 };                      /* ompt_task_status_t */
enum { LOCK = 1, CRITICAL = 5, ATOMIC = 6, ORDERED = 7 };                      /* ompt_mutex_t; the rest may be had without an end */

typedef union { uint64_t value; void *pointer; } word;
typedef void function(void);
typedef function *lookup(const char *name);
struct tool { int (*initialize)(lookup *find, int device, word *own); void (*finalize)(word *own); word own; };

/* --- teams: when each began and ended, as long as so many others haven't come since --- */

static struct { _Atomic uint64_t id, began, ended; } teams[TEAMS] = {[NO_TEAM] = {NO_TEAM, 1, 1}};
static _Atomic uint64_t last_team = NO_TEAM;

static uint64_t team_begins(void) {
    uint64_t id = atomic_fetch_add(&last_team, 1) + 1;
    __typeof__(&teams[0]) team = &teams[id % TEAMS];
    atomic_store(&team->id, 0);
    atomic_store(&team->ended, 0), atomic_store(&team->began, monotonic());
    atomic_store(&team->id, id);
    return id;
}

static void team_ends(uint64_t id) {
    __typeof__(&teams[0]) team = &teams[id % TEAMS];
    if (atomic_load(&team->id) == id) atomic_store(&team->ended, monotonic());
}

uint64_t team_ended(uint64_t id) {
    __typeof__(&teams[0]) team = &teams[id % TEAMS];
    uint64_t ended = atomic_load(&team->ended);
    return atomic_load(&team->id) == id ? ended : 1;
}

static uint64_t team_began(uint64_t id) {
    __typeof__(&teams[0]) team = &teams[id % TEAMS];
    uint64_t began = atomic_load(&team->began);
    return atomic_load(&team->id) == id ? began : 0;
}

/* --- a thread --- */

static _Thread_local struct {
    bool worker, idle, forks, waits; /* the runtime's own thread; in no team; hands work out or gathers it; what is told now */
    uint32_t tasks, depth;           /* implicit tasks that it is in; of what is in `stack`: */
    uint64_t stack;                  /* a bit for each wait (1) and each task that it does meanwhile (0), the innermost the lowest */
    uint64_t team, outer[NESTED];    /* the innermost team, and those around it */
    uint64_t began;
} me;
static uint32_t at_barrier, at_lock, idle, forks; /* names' numbers */
static char version[SHOWN];                       /* of the runtime that tells us, "" for none */

uint32_t openmp_idle(void) { return idle; }
uint32_t openmp_forks(void) { return forks; }

/* Tell what the thread does now, if it is something else than before; `next` is when the team began that it now works in. */
static void settle(uint32_t name, uint64_t next) {
    bool wanted = me.idle || me.forks || (me.depth && me.depth <= DEEPEST && (me.stack & 1));
    if (wanted == me.waits) return;
    struct lane *here = !recording_wanted() ? NULL : wanted ? lane() : lane_if_any();
    me.waits = wanted && here;
    if (here && wanted && me.forks) wait_begin(here, forks, false);
    else if (here && wanted) team_wait_begin(here, name, me.team);
    else if (here) team_wait_end(here, next);
}

static void push(bool wait) {
    if (me.depth++ < DEEPEST) me.stack = me.stack << 1 | wait;
}

static void pop(bool wait) {
    if (!me.depth) return;
    if (me.depth <= DEEPEST && (me.stack & 1) != wait) return; /* another one's end */
    if (me.depth-- <= DEEPEST) me.stack >>= 1;
}

static void thread_begins(int type, word *own) {
    (void)own;
    if (type != WORKER || !recording_wanted()) return;
    useful_of_thread();
    struct lane *here = lane();
    if (!here) return;
    memset(&me, 0, sizeof me);
    me.worker = me.idle = true, me.team = NO_TEAM, me.began = monotonic();
    host_thread(here, me.began, 0);
    settle(at_barrier, 0);
}

static void thread_ends(word *own) {
    (void)own;
    if (!me.worker) return;
    me.idle = me.forks = false, me.depth = 0;
    settle(0, 0);
    struct lane *here = recording_wanted() ? lane_if_any() : NULL;
    if (here) host_thread(here, me.began, monotonic());
    me.worker = false;
}

static void parallel_begins(word *task, const void *frame, word *parallel, unsigned asked, int flags, const void *code) {
    (void)task, (void)frame, (void)asked, (void)flags, (void)code;
    parallel->value = team_begins();
    me.forks = true;
    settle(0, 0);
}

static void parallel_ends(word *parallel, word *task, int flags, const void *code) {
    (void)task, (void)flags, (void)code;
    team_ends(parallel->value);
    me.forks = false;
    settle(0, 0);
}

static void task_begins(uint64_t team) {
    if (me.tasks < NESTED) me.outer[me.tasks] = me.team;
    me.tasks++;
    me.team = team, me.idle = me.forks = false;
    if (me.tasks == 1) me.depth = 0;
    settle(0, team_began(team));
}

/* Of a thread of the runtime's own nothing follows but waiting for the next team, elsewhere the gathering of this one. */
static void task_ends(void) {
    if (!me.tasks) return;
    uint64_t team = me.team;
    me.tasks--;
    if (me.tasks < NESTED) me.team = me.outer[me.tasks];
    if (!me.tasks) me.depth = 0;
    me.idle = me.worker && !me.tasks, me.forks = !me.idle;
    if (me.idle) me.team = team;
    settle(at_barrier, 0);
}

static void implicit_task(int endpoint, word *parallel, word *task, unsigned size, unsigned index, int flags) {
    (void)task, (void)size, (void)index;
    if (flags & INITIAL_TASK) return;
    if (endpoint == BEGINS && parallel) task_begins(parallel->value);
    else if (endpoint == ENDS) task_ends();
}

static void sync_wait(int kind, int endpoint, word *parallel, word *task, const void *code) {
    (void)kind, (void)parallel, (void)task, (void)code;
    if (endpoint == BEGINS) push(true);
    else if (endpoint == ENDS) pop(true);
    settle(at_barrier, 0);
}

static bool ends_always(int kind) { return kind == LOCK || kind == CRITICAL || kind == ATOMIC || kind == ORDERED; }

static void mutex_wanted(int kind, unsigned hint, unsigned how, uint64_t lock, const void *code) {
    (void)hint, (void)how, (void)lock, (void)code;
    if (!ends_always(kind)) return;
    push(true);
    settle(at_lock, 0);
}

static void mutex_had(int kind, uint64_t lock, const void *code) {
    (void)lock, (void)code;
    if (!ends_always(kind)) return;
    pop(true);
    settle(0, 0);
}

/* A thread that waits does tasks meanwhile. */
static void task_scheduled(word *before, int status, word *next) {
    (void)before, (void)next;
    if (status == COMPLETE || status == CANCEL || status == DETACH) pop(false);
    else if (status == YIELD || status == SWITCH) push(false);
    settle(at_barrier, 0);
}

/* --- coming in --- */

static int initialize(lookup *find, int device, word *own) {
    (void)device, (void)own;
    int (*set)(int, function *) = (int (*)(int, function *))find("ompt_set_callback");
    if (!set) return 0;
    at_barrier = name_number("OpenMP barrier"), at_lock = name_number("OpenMP lock");
    idle = name_number("OpenMP idle"), forks = name_number("OpenMP fork and join");
    const struct { int which; function *ours; } wanted[] = {
        {THREAD_BEGIN, (function *)thread_begins}, {THREAD_END, (function *)thread_ends}, {PARALLEL_BEGIN, (function *)parallel_begins},
        {PARALLEL_END, (function *)parallel_ends}, {TASK_SCHEDULE, (function *)task_scheduled}, {IMPLICIT_TASK, (function *)implicit_task},
        {SYNC_WAIT, (function *)sync_wait}, {MUTEX_ACQUIRE, (function *)mutex_wanted}, {MUTEX_ACQUIRED, (function *)mutex_had}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) set(wanted[i].which, wanted[i].ours);
    return 1; /* go on telling */
}

static void finalize(word *own) { (void)own; }

/* The runtime looks here first, then at the tools that the environment names: these are to have it, if there are any. */
EXPORTED __attribute__((weak)) struct tool *ompt_start_tool(unsigned omp, const char *runtime);
struct tool *ompt_start_tool(unsigned omp, const char *runtime) {
    static struct tool ours = {initialize, finalize, {0}};
    struct tool *(*next)(unsigned, const char *) = (struct tool * (*)(unsigned, const char *)) dlsym(RTLD_NEXT, "ompt_start_tool");
    struct tool *other = next && next != ompt_start_tool ? next(omp, runtime) : NULL;
    const char *libraries = getenv("OMP_TOOL_LIBRARIES");
    if (other || (libraries && *libraries) || !recording_wanted() || !settings.openmp) return other;
    snprintf(version, sizeof version, "%s", runtime ? runtime : "OpenMP");
    return &ours;
}

/* --- what is known of it --- */

static int is_runtime(struct dl_phdr_info *library, size_t size, void *found) {
    static const char *const names[] = {"libgomp.so", "libomp.so", "libiomp5.so", "libomp-", "libnvomp.so", "libcraymp.so"};
    const char *slash = library->dlpi_name ? strrchr(library->dlpi_name, '/') : NULL;
    (void)size;
    for (size_t i = 0; slash && i < sizeof names / sizeof *names; i++)
        if (!strncmp(slash + 1, names[i], strlen(names[i]))) {
            snprintf(found, SHOWN, "%s", slash + 1);
            return 1;
        }
    return 0;
}

/* One that is loaded, as by many a library of Python, makes no threads by that alone. */
static bool has_threads(void) {
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 + 1 + OUR_THREADS;
}

/* A member of an object; nothing where the program has no OpenMP. */
void openmp_facts(struct text *json) {
    char name[SHOWN] = "";
    if (!settings.openmp) return;
    if (!*version && has_threads()) dl_iterate_phdr(is_runtime, name);
    if (!*version && !*name) return;
    text_add(json, "%s\"openmp\": {\"runtime\": ", json->length > 1 ? ", " : "");
    text_quoted(json, *version ? version : name);
    text_add(json, ", \"told\": %s}", *version ? "true" : "false");
}
