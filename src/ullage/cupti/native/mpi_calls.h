/* MPI's functions that communicate, wait, or that all ranks call: in C's spelling and in Fortran's. */
#define MPI_CALLS(X)                                                                                                            \
    X(Send, send) X(Bsend, bsend) X(Ssend, ssend) X(Rsend, rsend) X(Recv, recv) X(Mrecv, mrecv) X(Imrecv, imrecv)               \
    X(Isend, isend) X(Ibsend, ibsend) X(Issend, issend) X(Irsend, irsend) X(Irecv, irecv)                                       \
    X(Sendrecv, sendrecv) X(Sendrecv_replace, sendrecv_replace) X(Isendrecv, isendrecv)                                         \
    X(Isendrecv_replace, isendrecv_replace)                                                                                     \
    X(Probe, probe) X(Iprobe, iprobe) X(Mprobe, mprobe) X(Improbe, improbe) X(Cancel, cancel)                                   \
    X(Start, start) X(Startall, startall) X(Pready, pready) X(Pready_range, pready_range) X(Pready_list, pready_list)           \
    X(Parrived, parrived)                                                                                                       \
    X(Wait, wait) X(Waitall, waitall) X(Waitany, waitany) X(Waitsome, waitsome)                                                 \
    X(Test, test) X(Testall, testall) X(Testany, testany) X(Testsome, testsome) X(Request_get_status, request_get_status)       \
    X(Buffer_detach, buffer_detach) X(Buffer_flush, buffer_flush)                                                               \
    X(Barrier, barrier) X(Bcast, bcast) X(Gather, gather) X(Gatherv, gatherv) X(Scatter, scatter) X(Scatterv, scatterv)         \
    X(Allgather, allgather) X(Allgatherv, allgatherv) X(Alltoall, alltoall) X(Alltoallv, alltoallv) X(Alltoallw, alltoallw)     \
    X(Reduce, reduce) X(Allreduce, allreduce) X(Reduce_scatter, reduce_scatter)                                                 \
    X(Reduce_scatter_block, reduce_scatter_block) X(Scan, scan) X(Exscan, exscan)                                               \
    X(Ibarrier, ibarrier) X(Ibcast, ibcast) X(Igather, igather) X(Igatherv, igatherv) X(Iscatter, iscatter)                     \
    X(Iscatterv, iscatterv) X(Iallgather, iallgather) X(Iallgatherv, iallgatherv) X(Ialltoall, ialltoall)                       \
    X(Ialltoallv, ialltoallv) X(Ialltoallw, ialltoallw) X(Ireduce, ireduce) X(Iallreduce, iallreduce)                           \
    X(Ireduce_scatter, ireduce_scatter) X(Ireduce_scatter_block, ireduce_scatter_block) X(Iscan, iscan) X(Iexscan, iexscan)     \
    X(Neighbor_allgather, neighbor_allgather) X(Neighbor_allgatherv, neighbor_allgatherv)                                       \
    X(Neighbor_alltoall, neighbor_alltoall) X(Neighbor_alltoallv, neighbor_alltoallv)                                           \
    X(Neighbor_alltoallw, neighbor_alltoallw) X(Ineighbor_allgather, ineighbor_allgather)                                       \
    X(Ineighbor_allgatherv, ineighbor_allgatherv) X(Ineighbor_alltoall, ineighbor_alltoall)                                     \
    X(Ineighbor_alltoallv, ineighbor_alltoallv) X(Ineighbor_alltoallw, ineighbor_alltoallw)                                     \
    X(Comm_create, comm_create) X(Comm_create_group, comm_create_group) X(Comm_dup, comm_dup) X(Comm_idup, comm_idup)           \
    X(Comm_dup_with_info, comm_dup_with_info) X(Comm_split, comm_split) X(Comm_split_type, comm_split_type)                     \
    X(Comm_free, comm_free) X(Comm_accept, comm_accept) X(Comm_connect, comm_connect) X(Comm_disconnect, comm_disconnect)       \
    X(Comm_spawn, comm_spawn) X(Comm_spawn_multiple, comm_spawn_multiple) X(Comm_join, comm_join)                               \
    X(Comm_create_from_group, comm_create_from_group) X(Intercomm_create, intercomm_create)                                     \
    X(Intercomm_merge, intercomm_merge) X(Cart_create, cart_create) X(Cart_sub, cart_sub) X(Graph_create, graph_create)         \
    X(Dist_graph_create, dist_graph_create) X(Dist_graph_create_adjacent, dist_graph_create_adjacent)                           \
    X(Win_create, win_create) X(Win_allocate, win_allocate) X(Win_allocate_shared, win_allocate_shared)                         \
    X(Win_create_dynamic, win_create_dynamic) X(Win_free, win_free) X(Win_fence, win_fence) X(Win_start, win_start)             \
    X(Win_complete, win_complete) X(Win_post, win_post) X(Win_wait, win_wait) X(Win_test, win_test) X(Win_lock, win_lock)       \
    X(Win_lock_all, win_lock_all) X(Win_unlock, win_unlock) X(Win_unlock_all, win_unlock_all) X(Win_flush, win_flush)           \
    X(Win_flush_all, win_flush_all) X(Win_flush_local, win_flush_local) X(Win_flush_local_all, win_flush_local_all)             \
    X(Win_sync, win_sync) X(Put, put) X(Get, get) X(Accumulate, accumulate) X(Get_accumulate, get_accumulate)                   \
    X(Fetch_and_op, fetch_and_op) X(Compare_and_swap, compare_and_swap) X(Rput, rput) X(Rget, rget)                             \
    X(Raccumulate, raccumulate) X(Rget_accumulate, rget_accumulate)                                                             \
    X(File_open, file_open) X(File_close, file_close) X(File_sync, file_sync) X(File_set_size, file_set_size)                   \
    X(File_set_view, file_set_view) X(File_preallocate, file_preallocate)                                                       \
    X(File_read, file_read) X(File_read_all, file_read_all) X(File_read_at, file_read_at)                                       \
    X(File_read_at_all, file_read_at_all) X(File_read_shared, file_read_shared) X(File_read_ordered, file_read_ordered)         \
    X(File_write, file_write) X(File_write_all, file_write_all) X(File_write_at, file_write_at)                                 \
    X(File_write_at_all, file_write_at_all) X(File_write_shared, file_write_shared)                                             \
    X(File_write_ordered, file_write_ordered) X(File_iread, file_iread) X(File_iread_at, file_iread_at)                         \
    X(File_iread_all, file_iread_all) X(File_iread_at_all, file_iread_at_all) X(File_iwrite, file_iwrite)                       \
    X(File_iwrite_at, file_iwrite_at) X(File_iwrite_all, file_iwrite_all) X(File_iwrite_at_all, file_iwrite_at_all)             \
    X(File_read_all_begin, file_read_all_begin) X(File_read_all_end, file_read_all_end)                                         \
    X(File_write_all_begin, file_write_all_begin) X(File_write_all_end, file_write_all_end)
