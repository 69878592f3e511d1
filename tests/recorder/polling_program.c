/* An MPI whose calls take no time, and a program that does nothing but ask it (POLLS calls), or computes for SECONDS between two of
 * them. It prints how many calls it made, and how long it took. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef LIBRARY
int PMPI_Init(void *a, void *b) { (void)a, (void)b; return 0; }
int PMPI_Test(long request, int *flag) { (void)request, *flag = 0; return 0; }
int PMPI_Finalize(void) { return 0; }
__attribute__((weak)) int MPI_Init(void *a, void *b) { return PMPI_Init(a, b); }
__attribute__((weak)) int MPI_Test(long request, int *flag) { return PMPI_Test(request, flag); }
__attribute__((weak)) int MPI_Finalize(void) { return PMPI_Finalize(); }
#else
int MPI_Init(void *, void *), MPI_Test(long, int *), MPI_Finalize(void);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
    int flag, polls = count > 1 ? atoi(words[1]) : 0;
    double seconds = count > 2 ? atof(words[2]) : 0;
    MPI_Init(NULL, NULL);
    double start = now();
    for (int i = 0; i < polls; i++) {
        MPI_Test(0, &flag);
        if (seconds > 0) for (double end = now() + seconds; now() < end;) {}
    }
    printf("%d %f\n", polls, now() - start);
    MPI_Finalize();
    return 0;
}
#endif
