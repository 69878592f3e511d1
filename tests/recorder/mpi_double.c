/* A double of MPICH: a library whose MPI_COMM_WORLD is a number, and the program that is linked with it. Each function takes 20 ms, checks
 * what it is handed, and answers with a number of its own. Compiled twice: with -DLIBRARY for the library. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WORLD = 0x44000000, INT = 0x4c000405, SUM = 0x58000003 };

#ifdef LIBRARY
static int took(int answer) { usleep(20000); return answer; }
int PMPI_Barrier(int world) { return took(world == WORLD ? 0 : 5); }
int PMPI_Init(int *count, char ***words) { (void)count, (void)words; return PMPI_Barrier(WORLD); }
int PMPI_Comm_rank(int world, int *rank) { *rank = 2; return world != WORLD; }
int PMPI_Comm_size(int world, int *size) { *size = 3; return world != WORLD; }
int PMPI_Get_library_version(char *text, int *length) { *length = (int)strlen(strcpy(text, "MPICH Version: 4.0 (a double)")); return 0; }
int PMPI_Finalize(void) { return took(0); }
int PMPI_Rget_accumulate(const void *a, int b, int c, void *d, int e, int f, int g, long h, int i, int j, int k, int l, int *m) {
    *m = b + 2 * c + 3 * e + 4 * f + 5 * g + 6 * i + 7 * j + 8 * k + 9 * l + (h == -(1L << 40)) + (a == d);
    return took(-17);
}
void pmpi_barrier_(int *world, int *error) { *error = PMPI_Barrier(*world); }
/* As in MPICH: the MPI names are weak, and call nothing but the other ones; Fortran's call C's MPI names. */
#define WEAK __attribute__((weak))
WEAK int MPI_Barrier(int world) { return PMPI_Barrier(world); }
WEAK int MPI_Init(int *count, char ***words) { return PMPI_Init(count, words); }
WEAK int MPI_Finalize(void) { return PMPI_Finalize(); }
WEAK int MPI_Rget_accumulate(const void *a, int b, int c, void *d, int e, int f, int g, long h, int i, int j, int k, int l, int *m) {
    return PMPI_Rget_accumulate(a, b, c, d, e, f, g, h, i, j, k, l, m);
}
int MPI_Allreduce(const void *a, void *b, int c, int d, int e, int f);
int PMPI_Allreduce(const void *a, void *b, int c, int d, int e, int f) { /* made of others, as it may be */
    (void)a, (void)b, (void)c, (void)d, (void)e;
    return MPI_Barrier(f) + MPI_Barrier(f);
}
WEAK int MPI_Allreduce(const void *a, void *b, int c, int d, int e, int f) { return PMPI_Allreduce(a, b, c, d, e, f); }
WEAK void mpi_barrier_(int *world, int *error) { pmpi_barrier_(world, error); }
#else
int MPI_Init(int *, char ***), MPI_Barrier(int), MPI_Allreduce(const void *, void *, int, int, int, int), MPI_Finalize(void);
int MPI_Rget_accumulate(const void *, int, int, void *, int, int, int, long, int, int, int, int, int *);
void mpi_barrier_(int *, int *);
int main(int count, char **words) {
    int sum = 0, world = WORLD, error = -1;
    int began = MPI_Init(&count, &words), reduced = MPI_Allreduce(NULL, NULL, 1, INT, SUM, WORLD);
    int got = MPI_Rget_accumulate(NULL, 1, 2, NULL, 3, 4, 5, -(1L << 40), 6, 7, 8, 9, &sum);
    mpi_barrier_(&world, &error);
    int wrong = MPI_Barrier(1234), ended = MPI_Finalize();
    printf("%d %d %d %d %d %d %d\n", began, reduced, got, sum, error, wrong, ended);
    return 6;
}
#endif
