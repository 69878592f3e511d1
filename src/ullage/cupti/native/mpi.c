/* MPI's functions, by their names, around the library's own (its PMPI names). No header of MPI is needed, nor does it matter whose MPI it
 * is: on the ABIs of x86-64 and of 64-bit Arm each argument of these functions is a word in a register or on the stack, and none of them
 * has more than 16; what is passed beyond is ignored. A program without MPI never calls one of these. */
#define _GNU_SOURCE
#include "mpi_calls.h"
#include "recorder.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define WORDS long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l, long m, long n, long o, long p
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p
#define CALLER __builtin_return_address(0)

enum { ERROR_OTHER = 15, MPICH_WORLD = 0x44000000, VERSION_LONGEST = 1 << 14 };

typedef long words(WORDS);
struct call { /* of one of MPI's functions */
    const char *own, *shown; /* the library's own name of it; the name in the recording */
    _Atomic(words *) next;
    _Atomic uint32_t number;
};

/* A library that was loaded privately (mpi4py's) is in nobody's sight but the caller's. What is data is looked for as the program sees
 * it, not in what comes after us: an executable may hold a copy of it, and then that is the one that counts. */
static void *from_library(const char *name, const void *caller) {
    void *found = dlsym(RTLD_DEFAULT, name);
    Dl_info where;
    if (found || !dladdr(caller, &where) || !where.dli_fname) return found;
    void *handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle) found = dlsym(handle, name), dlclose(handle);
    return found;
}

static words *next_of(struct call *call, const void *caller) {
    words *next = atomic_load_explicit(&call->next, memory_order_acquire);
    if (!next) atomic_store(&call->next, next = (words *)from_library(call->own, caller));
    return next;
}

static struct lane *enter(struct call *call) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    if (!here) return NULL;
    uint32_t number = atomic_load_explicit(&call->number, memory_order_relaxed);
    if (!number) atomic_store(&call->number, number = name_number(call->shown));
    wait_begin(here, number);
    return here;
}

static void leave(struct lane *here) {
    if (here) wait_end(here);
}

static inline long around(struct call *call, const void *caller, WORDS) {
    words *next = next_of(call, caller);
    if (!next) return ERROR_OTHER;
    struct lane *here = enter(call);
    long answer = next(PASSED);
    leave(here);
    return answer;
}

#define WRAPPED(name, lower)                                           \
    EXPORTED int MPI_##name(WORDS);                                    \
    EXPORTED int MPI_##name(WORDS) {                                   \
        static struct call call = {"PMPI_" #name, "MPI_" #name, 0, 0}; \
        return (int)around(&call, CALLER, PASSED);                     \
    }                                                                  \
    EXPORTED void mpi_##lower##_(WORDS);                               \
    EXPORTED void mpi_##lower##_(WORDS) {                              \
        static struct call call = {"pmpi_" #lower "_", "MPI_" #name, 0, 0}; \
        around(&call, CALLER, PASSED);                                 \
    }
MPI_CALLS(WRAPPED)

/* --- who this rank is --- */

/* MPI_COMM_WORLD is an address in Open MPI, a number in MPICH and what descends from it; of others the environment must tell. */
static bool world(const void *caller, long *communicator) {
    int (*version)(char *, int *) = (int (*)(char *, int *))from_library("PMPI_Get_library_version", caller);
    void *open_mpi = from_library("ompi_mpi_comm_world", caller);
    char *text = open_mpi ? NULL : calloc(1, VERSION_LONGEST);
    int length;
    *communicator = open_mpi ? (long)open_mpi : MPICH_WORLD;
    bool known = open_mpi || (text && version && version(text, &length) == 0 &&
                              (strstr(text, "MPICH") || strstr(text, "MVAPICH") || strstr(text, "Intel(R) MPI")));
    free(text);
    return known;
}

static void learn_ranks(const void *caller) {
    typedef int of_communicator(long communicator, int *answer);
    of_communicator *rank_of = (of_communicator *)from_library("PMPI_Comm_rank", caller);
    of_communicator *size_of = (of_communicator *)from_library("PMPI_Comm_size", caller);
    long communicator;
    int rank = -1, ranks = -1;
    if (!rank_of || !size_of || !world(caller, &communicator)) return;
    if (rank_of(communicator, &rank) == 0 && size_of(communicator, &ranks) == 0) facts_ranks(rank, ranks);
}

/* --- the beginning and the end --- */

/* What is done here belongs to MPI_Init: the run begins when the program has it back. */
static long begun(struct call *call, const void *caller, WORDS) {
    words *next = next_of(call, caller);
    if (!next) return ERROR_OTHER;
    struct lane *here = enter(call);
    long answer = next(PASSED);
    if (recording_wanted()) learn_ranks(caller), recorder_work(true);
    leave(here);
    return answer;
}

static long ended(struct call *call, const void *caller, WORDS) {
    long answer = around(call, caller, PASSED);
    if (recording_wanted()) recorder_flush();
    return answer;
}

/* It doesn't return: what there is is written before it. */
static long aborted(struct call *call, const void *caller, WORDS) {
    words *next = next_of(call, caller);
    if (recording_wanted()) recorder_flush();
    return next ? next(PASSED) : ERROR_OTHER;
}

#define SPECIAL(name, lower, how)                                      \
    EXPORTED int MPI_##name(WORDS);                                    \
    EXPORTED int MPI_##name(WORDS) {                                   \
        static struct call call = {"PMPI_" #name, "MPI_" #name, 0, 0}; \
        return (int)how(&call, CALLER, PASSED);                        \
    }                                                                  \
    EXPORTED void mpi_##lower##_(WORDS);                               \
    EXPORTED void mpi_##lower##_(WORDS) {                              \
        static struct call call = {"pmpi_" #lower "_", "MPI_" #name, 0, 0}; \
        how(&call, CALLER, PASSED);                                    \
    }
SPECIAL(Init, init, begun)
SPECIAL(Init_thread, init_thread, begun)
SPECIAL(Finalize, finalize, ended)
SPECIAL(Abort, abort, aborted)
