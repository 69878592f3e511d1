/* A program whose every moment is told: it reads lines "MOMENT THREAD DEED [ARGUMENT [NAME]]" from a file and does each deed in its thread at its moment.
 * Its clocks are the functions that the recorder asks for the time, so nothing takes any time but what the lines say; waits of the
 * recorder's own go by the real clock. Reading the clock before the first line takes STEP ns, so that the recorder finds a cost of its own.
 * What MPI would do is to let ARGUMENT ns go by.
 *
 * Threads have CPU clocks, which stand still while a thread does the deed "off": for so many ns it is on no processor.
 *
 * With OMPT=1 it is a runtime of OpenMP too, which tells the recorder what a deed says; ARGUMENT is a team's number.
 *
 * With COUNTERS="COST OF REFUSED" the processor has counters: of each ns three instructions and two cycles, of which one in OF is counted.
 * To read them takes COST ns, in which nothing is counted; REFUSED is the errno by which they are not to be had, if it isn't 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, REGIONS = 4096 };
static const uint64_t UPTIME = 3000000000000u, EPOCH = 1767225600000000000u;
static _Atomic uint64_t moment, step;
static long takes;
static struct { uint64_t start; int thread; char deed[16], argument[32], name[64]; } line;
static struct { pthread_t thread; sem_t go; int there; } workers[THREADS];
static sem_t done;
static uint32_t serials[REGIONS];

static uint32_t (*begin)(const char *);
static void (*end)(uint32_t), (*push)(const char *), (*pop)(void), (*host)(uint16_t, const char *, uint64_t, uint64_t, uint64_t);
static void (*wait_begin)(const char *), (*wait_end)(void);
static int (*flush)(void);

/* CPU clocks: of this thread, or of one by its number. Of threads that are not the script's they go as all others. */
static struct { _Atomic pid_t number; uint64_t off; } absences[THREADS];
static _Thread_local int me = -1;
static atomic_flag going_on = ATOMIC_FLAG_INIT; /* a moment and what is off by then go together */

static uint64_t off_of(clockid_t clock) {
    int who = clock == CLOCK_THREAD_CPUTIME_ID ? me : -1;
    for (int i = 0; clock < 0 && i < THREADS; i++)
        if (absences[i].number == ~(clock >> 3)) who = i;
    return who < 0 ? 0 : absences[who].off;
}

static void go_on_without(uint64_t time) {
    while (atomic_flag_test_and_set(&going_on)) {}
    moment += time, absences[me].off += time;
    atomic_flag_clear(&going_on);
}

static void known_as(int number) { me = number, absences[number].number = gettid(); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    while (atomic_flag_test_and_set(&going_on)) {}
    uint64_t value = atomic_fetch_add(&moment, atomic_load(&step)) + (clock == CLOCK_REALTIME ? EPOCH : UPTIME) - off_of(clock);
    atomic_flag_clear(&going_on);
    *now = (struct timespec){(time_t)(value / 1000000000u), (long)(value % 1000000000u)};
    return 0;
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) { (void)until; return pthread_mutex_lock(mutex); }

/* The writer looks again after a real millisecond. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    (void)condition, (void)until;
    pthread_mutex_unlock(mutex);
    usleep(1000);
    pthread_mutex_lock(mutex);
    return 110;
}

/* The processor's counters, as the system gives a group of two. */
static long cost, of = 1, refused, readings;

static long read_counters(uint64_t *values) {
    moment += (uint64_t)cost, readings++;
    uint64_t now = moment - (uint64_t)(readings * cost), counted = now / (uint64_t)of;
    memcpy(values, (uint64_t[]){2, now, counted, 3 * counted, 2 * counted}, 5 * sizeof *values);
    return 5 * sizeof *values;
}

long syscall(long number, ...) {
    static long (*next)(long, ...);
    const char *asked = getenv("COUNTERS");
    long words[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) words[i] = va_arg(given, long);
    va_end(given);
    if (asked && number == SYS_perf_event_open) {
        sscanf(asked, "%ld %ld %ld", &cost, &of, &refused);
        errno = (int)refused;
        return refused ? -1 : dup(0);
    }
    if (asked && number == SYS_read) return read_counters((uint64_t *)words[1]);
    if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int ioctl(int descriptor, unsigned long request, ...) {
    va_list given;
    va_start(given, request);
    *va_arg(given, uint64_t *) = 1;
    va_end(given);
    return descriptor < 0 || !request;
}

#define MPI(name) __attribute__((visibility("default"))) int PMPI_##name(long a); int PMPI_##name(long a) { (void)a; moment += (uint64_t)takes; return 0; }
MPI(Init) MPI(Finalize) MPI(Barrier) MPI(Allreduce) MPI(Test)

/* OpenMP's runtime: what the recorder wants to be told, by the numbers of OMPT. */
enum { TEAMS = 1024, CALLBACKS = 32 };
static void *told[CALLBACKS];
static uint64_t team_data[TEAMS];
static int set_callback(int which, void *function) { told[which] = function; return 5; }
static void *found(const char *name) { return strcmp(name, "ompt_set_callback") ? NULL : (void *)set_callback; }

static void start_tool(void) {
    struct { int (*initialize)(void *(*)(const char *), int, void *); void *finalize; uint64_t data; } *tool;
    void *(*start)(unsigned, const char *) = (void *(*)(unsigned, const char *))dlsym(RTLD_DEFAULT, "ompt_start_tool");
    tool = start ? start(202011, "a scripted runtime") : NULL;
    if (!tool || !tool->initialize(found, 0, &tool->data)) exit(93);
}

static void openmp(uint64_t *team) {
    typedef void thread_begin(int, void *), thread_end(void *), parallel_begin(void *, void *, void *, unsigned, int, void *);
    typedef void parallel_end(void *, void *, int, void *), task(int, void *, void *, unsigned, unsigned, int), sync(int, int, void *, void *, void *);
    typedef void schedule(void *, int, void *), acquire(int, unsigned, unsigned, uint64_t, void *), acquired(int, uint64_t, void *);
    uint64_t other = 0;
    if (!strcmp(line.deed, "worker")) ((thread_begin *)told[1])(2, &other);
    if (!strcmp(line.deed, "gone")) ((thread_end *)told[2])(&other);
    if (!strcmp(line.deed, "fork")) ((parallel_begin *)told[3])(NULL, NULL, team, 4, 0, NULL);
    if (!strcmp(line.deed, "join")) ((parallel_end *)told[4])(team, NULL, 0, NULL);
    if (!strcmp(line.deed, "into")) ((task *)told[7])(1, team, &other, 4, 0, 2);
    if (!strcmp(line.deed, "outof")) ((task *)told[7])(2, NULL, &other, 0, 0, 2);
    if (!strcmp(line.deed, "meet")) ((sync *)told[16])(2, 1, team, &other, NULL);
    if (!strcmp(line.deed, "met")) ((sync *)told[16])(2, 2, team, &other, NULL);
    if (!strcmp(line.deed, "lock")) ((acquire *)told[26])(5, 0, 0, 1, NULL);
    if (!strcmp(line.deed, "locked")) ((acquired *)told[27])(5, 1, NULL);
    if (!strcmp(line.deed, "task")) ((schedule *)told[6])(&other, 7, &other);
    if (!strcmp(line.deed, "tasked")) ((schedule *)told[6])(&other, 1, &other);
}

static void call(const char *name) {
    int (*function)(long) = (int (*)(long))dlsym(RTLD_DEFAULT, name); /* the recorder's */
    takes = atol(line.argument);
    function(0);
}

static void work(void) {
    int number = atoi(line.argument) % REGIONS;
    if (getenv("OMPT")) openmp(&team_data[number % TEAMS]);
    if (!strcmp(line.deed, "init")) call("MPI_Init");
    if (!strcmp(line.deed, "finalize")) call("MPI_Finalize");
    if (!strcmp(line.deed, "barrier")) call("MPI_Barrier");
    if (!strcmp(line.deed, "allreduce")) call("MPI_Allreduce");
    if (!strcmp(line.deed, "test")) call("MPI_Test");
    if (!strcmp(line.deed, "loop")) /* as many calls of 400 ns, 600 ns apart */
        for (long calls = atol(line.argument); calls--; moment += 600) strcpy(line.argument, "400"), call("MPI_Test");
    if (!strcmp(line.deed, "begin")) serials[number] = begin(line.name);
    if (!strcmp(line.deed, "end")) end(serials[number]);
    if (!strcmp(line.deed, "push")) push(line.name);
    if (!strcmp(line.deed, "pop")) pop();
    if (!strcmp(line.deed, "wait")) wait_begin(line.name);
    if (!strcmp(line.deed, "done")) wait_end();
    if (!strcmp(line.deed, "past")) host(1, line.name, UPTIME + line.start - (uint64_t)atol(line.argument), UPTIME + line.start, 0);
    if (!strcmp(line.deed, "flush")) flush();
    if (!strcmp(line.deed, "sleep")) usleep((useconds_t)atol(line.argument)); /* in real time: the writer comes */
    if (!strcmp(line.deed, "off")) go_on_without((uint64_t)atol(line.argument));
    if (!strcmp(line.deed, "kill")) raise(SIGKILL);
    if (!strcmp(line.deed, "leave")) _exit(0);
}

static void *worker(void *given) {
    __typeof__(&workers[0]) its = given;
    known_as((int)(its - workers));
    for (;;) {
        sem_wait(&its->go);
        if (!strcmp(line.deed, "over")) return NULL;
        work();
        sem_post(&done);
    }
}

static void in_thread(int number) {
    __typeof__(&workers[0]) its = &workers[number];
    if (!its->there) sem_init(&its->go, 0, 0), its->there = !pthread_create(&its->thread, NULL, worker, its);
    sem_post(&its->go);
    if (!strcmp(line.deed, "over")) pthread_join(its->thread, NULL), its->there = 0;
    else sem_wait(&done);
}

static void load(void) {
    const struct { const char *name; void *to; } functions[] = {
        {"ullage_region_begin", &begin}, {"ullage_region_end", &end}, {"ullage_region_push", &push}, {"ullage_region_pop", &pop},
        {"ullage_host", &host}, {"ullage_wait_begin", &wait_begin}, {"ullage_wait_end", &wait_end}, {"ullage_flush", &flush}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(RTLD_DEFAULT, functions[i].name);
        if (!found) fprintf(stderr, "no %s\n", functions[i].name), exit(90);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

int main(int count, char **words) {
    char text[256];
    FILE *script = count > 1 ? fopen(words[1], "r") : NULL;
    if (!script) return 92;
    load();
    known_as(0);
    sem_init(&done, 0, 0);
    step = (uint64_t)atol(getenv("STEP") ? getenv("STEP") : "0");
    wait_begin("before"), wait_end(); /* the recorder measures itself; what this is, the tests leave out */
    step = 0;
    if (getenv("OMPT")) start_tool();
    while (fgets(text, sizeof text, script)) {
        line.argument[0] = line.name[0] = 0;
        if (sscanf(text, "%lu %d %15s %31s %63[^\n]", &line.start, &line.thread, line.deed, line.argument, line.name) < 3) continue;
        moment = line.start;
        if (line.thread) in_thread(line.thread % THREADS);
        else work();
    }
    if (getenv("COUNTERS")) printf("%ld\n", readings);
    return 0;
}
