/* What a call of the recorder costs its caller: each line of output is a name, and ns a call on this machine. In between, rings fill and are
 * written, so that is counted in. The costs of MPI and of a callback are those with the recorder less those without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint32_t (*region_begin)(const char *);
static void (*region_end)(uint32_t), (*record_host)(uint16_t, const char *, uint64_t, uint64_t, uint64_t);
static uint64_t (*recorder_now)(void);
static uint32_t (*cuda_enter)(int, uint32_t, const char *, const void *);
static void (*cuda_exit)(int, uint32_t, const char *, const void *, uint32_t, int);
int MPI_Barrier(long world);

/* What MPI would have under this name: it does nothing. */
__attribute__((visibility("default"))) int PMPI_Barrier(long world);
int PMPI_Barrier(long world) { return (int)world; }

/* Of this thread: where others want the processor, what they take is none of ours. */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

#define TIMED(name, times, deed)                                     \
    do {                                                             \
        double least = 1e18;                                         \
        for (int round = 0; round < 5; round++) {                    \
            double start = now();                                    \
            for (long i = 0; i < (times); i++) { deed; }             \
            double each = (now() - start) / (double)(times);         \
            if (each < least) least = each;                          \
        }                                                            \
        printf("%s %.1f\n", name, least);                            \
    } while (0)

static void *find(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) fprintf(stderr, "no %s\n", name), exit(1);
    return found;
}

/* Another library's function of the same shape as the recorder's, that does nothing but call the next one. */
#define WORDS long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l, long m, long n, long o, long p
static long next(WORDS) { return (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k, (void)l, (void)m, (void)n, (void)o, (void)p, a; }
static long (*volatile following)(WORDS) = next;
static long interposed(WORDS) { return following(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); }
static int (*volatile empty)(long) = (int (*)(long))(void *)interposed;

int main(int count, char **words) {
    long times = count > 1 ? atol(words[1]) : 200000;
    void *library = dlopen(getenv("ULLAGE_RECORDER"), RTLD_NOW);
    *(void **)&region_begin = find(library, "ullage_region_begin");
    *(void **)&region_end = find(library, "ullage_region_end");
    *(void **)&record_host = find(library, "ullage_host");
    *(void **)&recorder_now = find(library, "ullage_now");
    int (*mpi)(long) = (int (*)(long))find(library, "MPI_Barrier");
    TIMED("clock", times, recorder_now());
    TIMED("region", times, region_end(region_begin("a region")));
    TIMED("host", times, record_host(1, "all_reduce", 1, 2, 3));
    TIMED("mpi", times, mpi(0));
    TIMED("empty", times, empty(0));
    void *cupti = count > 2 ? dlopen(words[2], RTLD_NOW) : NULL;
    if (!cupti) return 0;
    *(void **)&cuda_enter = find(cupti, "cupti_double_enter");
    *(void **)&cuda_exit = find(cupti, "cupti_double_exit");
    TIMED("call", times, cuda_exit(2, 211, "cudaLaunchKernel", NULL, cuda_enter(2, 211, "cudaLaunchKernel", NULL), 0));
    int (*initialize)(void) = (int (*)(void))find(library, "InitializeInjection");
    initialize();
    TIMED("call-traced", times, cuda_exit(2, 211, "cudaLaunchKernel", NULL, cuda_enter(2, 211, "cudaLaunchKernel", NULL), 0));
    return 0;
}
