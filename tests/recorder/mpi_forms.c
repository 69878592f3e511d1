/* Calls of MPI in each of C's forms, on two ranks, as the words say: for the tests of what is recorded. */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

static int rank, peer;
static int one = 1, got;

static void usual(void) {
    if (rank == 0) usleep(50000);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) MPI_Send(&one, 1, MPI_INT, peer, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(&got, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void profiled(void) { /* as a tool that was linked before us would call */
    PMPI_Barrier(MPI_COMM_WORLD);
    PMPI_Allreduce(&one, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void persistent(void) {
    MPI_Request request;
    if (rank == 0) MPI_Send_init(&one, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, &request);
    else MPI_Recv_init(&got, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

static void neighbours(void) {
    MPI_Comm ring;
    int all[2] = {2, 2}, periods[1] = {1}, from[2];
    MPI_Cart_create(MPI_COMM_WORLD, 1, all, periods, 0, &ring);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, from, 1, MPI_INT, ring);
    MPI_Comm_free(&ring);
}

#if MPI_VERSION >= 4
static void large(void) {
    MPI_Allreduce_c(&one, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) MPI_Send_c(&one, 1, MPI_INT, peer, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv_c(&got, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void partitioned(void) {
    MPI_Request request;
    if (rank == 0) MPI_Psend_init(&one, 1, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else MPI_Precv_init(&got, 1, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    if (rank == 0) MPI_Pready(0, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

static void collective(void) {
    MPI_Request request;
    MPI_Allreduce_init(&one, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

static int session(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm all;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_RETURN, &all);
    MPI_Barrier(all);
    MPI_Comm_disconnect(&all);
    MPI_Group_free(&group);
    return MPI_Session_finalize(&session);
}
#endif

int main(int count, char **words) {
    const char *deed = count > 1 ? words[1] : "usual";
#if MPI_VERSION >= 4
    if (!strcmp(deed, "session")) return session();
#endif
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    if (!strcmp(deed, "usual")) usual();
    if (!strcmp(deed, "profiled")) profiled();
    if (!strcmp(deed, "persistent")) persistent();
    if (!strcmp(deed, "neighbours")) neighbours();
    if (!strcmp(deed, "barrier")) MPI_Barrier(MPI_COMM_WORLD);
#if MPI_VERSION >= 4
    if (!strcmp(deed, "large")) large();
    if (!strcmp(deed, "partitioned")) partitioned();
    if (!strcmp(deed, "collective")) collective();
#endif
    MPI_Pcontrol(1, "a word", 2.5); /* takes what it is given */
    MPI_Finalize();
    return 0;
}
