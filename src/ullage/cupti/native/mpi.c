/* MPI's functions by all names by which programs call them (mpi_calls.h), each around the next one of its name: another tool's that stands
 * after us, or the library's. No header of MPI is needed, nor does it matter whose MPI it is: on the ABIs of x86-64 and of 64-bit Arm each
 * argument of these functions is a word in a register or on the stack, and none of them has more than 16; what is passed beyond is ignored.
 * A program without MPI never calls one of these.
 *
 * PMPI_X is wrapped as MPI_X is: it is what a tool that stands before us calls, and what functions of Fortran call whose names are not
 * here (other spellings than gfortran's, the standard's module procedures, PMPI's). A call inside another counts once, whichever names it
 * goes through. */
#define _GNU_SOURCE
#include "mpi_calls.h"
#include "recorder.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l, long m, long n, long o, long p
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p
#define CALLER __builtin_return_address(0)

enum { ERROR_OTHER = 15, MPICH_WORLD = 0x44000000, VERSION_LONGEST = 1 << 14, NAME_ROOM = 64 };
enum role { TIMED, BEGINS, ENDS, ABORTS };

typedef long words(WORDS);
struct call { /* of one of MPI's functions */
    const char *own, *shown; /* its name; the name in the recording: the same for all its forms, as they are one operation */
    enum role role;
    _Atomic(words *) next;
    _Atomic uint32_t number;
    bool edge; /* of the run: MPI's first or last call */
};

/* A library that was loaded privately (mpi4py's) is in nobody's sight but the caller's. */
static void *from_library(void *scope, const char *name, const void *caller) {
    void *found = dlsym(scope, name);
    Dl_info where;
    if (found || !dladdr(caller, &where) || !where.dli_fname) return found;
    void *handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle) found = dlsym(handle, name), dlclose(handle);
    return found;
}

/* What is data is looked for as the program sees it, not in what comes after us: an executable may hold a copy of it, and then that is
 * the one that counts. */
static void *of_library(const char *name, const void *caller) { return from_library(RTLD_DEFAULT, name, caller); }

/* Who loaded us at run time stands before us, and so does what it sees: then nothing comes next. */
static words *following(const char *name, const void *caller) {
    static const char here;
    Dl_info own, its;
    void *found = from_library(RTLD_NEXT, name, caller);
    if (found) return (words *)found;
    found = dlsym(RTLD_DEFAULT, name);
    bool ours = found && dladdr(&here, &own) && dladdr(found, &its) && own.dli_fbase == its.dli_fbase;
    return ours ? NULL : (words *)found;
}

static long missing(WORDS) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    (void)i, (void)j, (void)k, (void)l, (void)m, (void)n, (void)o, (void)p;
    return ERROR_OTHER;
}

/* A library may have no name but PMPI's. */
static words *next_of(struct call *call, const void *caller) {
    char profiled[NAME_ROOM];
    words *next = atomic_load_explicit(&call->next, memory_order_acquire);
    if (next) return next;
    snprintf(profiled, sizeof profiled, "%c%s", islower((unsigned char)*call->own) ? 'p' : 'P', call->own);
    next = following(call->own, caller);
    if (!next) next = following(profiled, caller);
    if (!next) return missing;
    atomic_store(&call->next, next);
    return next;
}

/* --- who this rank is --- */

/* MPI_COMM_WORLD is an address in Open MPI, a number in MPICH and what descends from it; of others the environment must tell. */
static bool world(const void *caller, long *communicator) {
    int (*version)(char *, int *) = (int (*)(char *, int *))of_library("PMPI_Get_library_version", caller);
    void *open_mpi = of_library("ompi_mpi_comm_world", caller);
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
    of_communicator *rank_of = (of_communicator *)of_library("PMPI_Comm_rank", caller);
    of_communicator *size_of = (of_communicator *)of_library("PMPI_Comm_size", caller);
    long communicator;
    int rank = -1, ranks = -1;
    if (!rank_of || !size_of || !world(caller, &communicator)) return;
    if (rank_of(communicator, &rank) == 0 && size_of(communicator, &ranks) == 0) facts_ranks(rank, ranks);
}

/* --- around a call --- */

static struct lane *enter(struct call *call) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    if (!here) return NULL;
    uint32_t number = atomic_load_explicit(&call->number, memory_order_relaxed);
    if (!number) {
        call->edge = call->role != TIMED || !strcmp(call->shown, "MPI_Session_init");
        atomic_store(&call->number, number = name_number(call->shown));
    }
    wait_begin(here, number, call->edge);
    return here;
}

/* MPI_Abort doesn't return: what there is is written before it. */
static struct lane *come(struct call *call) {
    if (call->role != ABORTS) return enter(call);
    if (recording_wanted()) recorder_flush();
    return NULL;
}

/* What is done after MPI_Init belongs to it: the run begins when the program has it back. */
static void go(const struct call *call, struct lane *here, const void *caller) {
    if (call->role == BEGINS && recording_wanted()) learn_ranks(caller), recorder_work(ASKED), useful_from_now();
    if (call->role == ENDS) useful_is_over();
    if (here) wait_end(here);
    if (call->role == ENDS && recording_wanted()) recorder_flush();
}

static __attribute__((noinline)) long around(WORDS, struct call *call, const void *caller) {
    words *next = next_of(call, caller);
    struct lane *here = come(call);
    long answer = next(PASSED);
    go(call, here, caller);
    return answer;
}

#define AROUND(own, shown, role)                                     \
    EXPORTED long own(WORDS);                                        \
    EXPORTED long own(WORDS) {                                       \
        static struct call call = {#own, "MPI_" #shown, role, 0, 0, 0}; \
        return around(PASSED, &call, CALLER);                        \
    }
/* C's, Fortran's, and those of `use mpi_f08` that hand arrays on as addresses and as descriptors. */
#define PLAIN(name, lower, role)                                           \
    AROUND(MPI_##name, name, role) AROUND(PMPI_##name, name, role)         \
    AROUND(mpi_##lower##_, name, role) AROUND(mpi_##lower##_f08_, name, role) AROUND(mpi_##lower##_f08ts_, name, role)
#define LARGE(name, lower, role)                                                                           \
    PLAIN(name, lower, role) AROUND(MPI_##name##_c, name, role) AROUND(PMPI_##name##_c, name, role)        \
    AROUND(mpi_##lower##_f08_large_, name, role) AROUND(mpi_##lower##_f08ts_large_, name, role)
MPI_PLAIN(PLAIN)
MPI_LARGE(LARGE)
