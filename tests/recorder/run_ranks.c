/* A rank of a program for Open MPI that says itself how long it was in MPI: rank r computes (sleeps) for (r + 1) × 60 ms, meets the others
 * in a barrier, computes for 30 ms on rank 0 alone, and meets them again. It prints one line of JSON: its rank, and by its own clock the
 * ns between MPI_Init and MPI_Finalize and the ns in barriers.
 *
 *   run_ranks [cuda | die N | exit N | steps N]
 *
 * cuda        launches a kernel on the fake CUDA and waits for it, before the first barrier
 * die N       rank N aborts before the barrier       exit N    it ends by exit(5) without MPI_Finalize
 * steps N     before all this, N times: rank r computes for (r + 1) × 20 ms, and meets the others
 *
 * As Open MPI's headers come in a package of their own, what of them is needed is declared here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char ompi_mpi_comm_world[];
int MPI_Init(int *, char ***), MPI_Comm_rank(void *, int *), MPI_Comm_size(void *, int *), MPI_Barrier(void *), MPI_Finalize(void);

static uint64_t in_mpi;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void meet(void) {
    uint64_t came = now();
    MPI_Barrier(ompi_mpi_comm_world);
    in_mpi += now() - came;
}

static void *found(void *library, const char *name) {
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) fprintf(stderr, "no %s\n", name), exit(3);
    return function;
}

static void use_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context, *function;
    ((int (*)(unsigned))found(library, "cuInit"))(0);
    ((int (*)(void **, unsigned, int))found(library, "cuCtxCreate_v2"))(&context, 0, 0);
    ((int (*)(void **, void *, const char *))found(library, "cuModuleGetFunction"))(&function, NULL, "ranks_kernel");
    ((int (*)(void *, unsigned, unsigned, void *))found(library, "cudaLaunchKernel"))(function, 40000, 128, NULL); /* 40 ms */
    ((int (*)(void))found(library, "cudaDeviceSynchronize"))();
}

int main(int count, char **words) {
    const char *deed = count > 1 ? words[1] : "";
    int rank, ranks, whose = count > 2 ? atoi(words[2]) : -1;
    MPI_Init(&count, &words);
    uint64_t began = now();
    MPI_Comm_rank(ompi_mpi_comm_world, &rank), MPI_Comm_size(ompi_mpi_comm_world, &ranks);
    for (int step = 0; !strcmp(deed, "steps") && step < whose; step++) usleep(20000 * (unsigned)(rank + 1)), meet();
    usleep(60000 * (unsigned)(rank + 1));
    if (!strcmp(deed, "cuda")) use_cuda();
    if (rank == whose && !strcmp(deed, "die")) abort();
    if (rank == whose && !strcmp(deed, "exit")) exit(5);
    meet();
    if (rank == 0) usleep(30000);
    meet();
    uint64_t ended = now();
    MPI_Finalize();
    printf("{\"rank\": %d, \"elapsed\": %llu, \"mpi\": %llu}\n", rank, (unsigned long long)(ended - began), (unsigned long long)in_mpi);
    return 0;
}
