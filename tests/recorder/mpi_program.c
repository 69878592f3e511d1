/* A program for Open MPI whose waiting is known: rank r sleeps r × 100 ms before a barrier, then rank 0 sleeps 50 ms and sends to all.
 * As Open MPI's headers come in a package of their own, what of them is needed is declared here: there, handles are addresses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_op_sum[];
int MPI_Init(int *, char ***), MPI_Comm_rank(void *, int *), MPI_Comm_size(void *, int *), MPI_Barrier(void *), MPI_Finalize(void);
int MPI_Send(const void *, int, void *, int, int, void *), MPI_Recv(void *, int, void *, int, int, void *, void *);
int MPI_Allreduce(const void *, void *, int, void *, void *, void *), MPI_Abort(void *, int);
int MPI_Sendrecv(const void *, int, void *, int, int, void *, int, void *, int, int, void *, void *);

int main(int count, char **words) {
    void *world = ompi_mpi_comm_world, *whole = ompi_mpi_int;
    int rank, size, value = 0, sum = 0, left = -1;
    MPI_Init(&count, &words);
    MPI_Comm_rank(world, &rank), MPI_Comm_size(world, &size);
    usleep(100000 * (unsigned)rank);
    MPI_Barrier(world);
    if (rank == 0) usleep(50000);
    for (int to = 1; rank == 0 && to < size; to++) MPI_Send(&to, 1, whole, to, 7, world);
    if (rank) MPI_Recv(&value, 1, whole, 0, 7, world, NULL);
    MPI_Allreduce(&value, &sum, 1, whole, ompi_mpi_op_sum, world);
    MPI_Sendrecv(&rank, 1, whole, (rank + 1) % size, 3, &left, 1, whole, (rank + size - 1) % size, 3, world, NULL);
    printf("{\"rank\": %d, \"size\": %d, \"sum\": %d, \"left\": %d, \"pid\": %d}\n", rank, size, sum, left, getpid());
    fflush(stdout);
    if (count > 1 && !strcmp(words[1], "abort")) MPI_Abort(world, 9);
    MPI_Finalize();
    return count > 1 ? atoi(words[1]) : 0;
}
