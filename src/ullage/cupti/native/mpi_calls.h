/* The calls of MPI 4.1, written by tools/mpi_calls.py. X(as in C, as in Fortran, what is done beside timing).
 * Those with large counts have forms of their own for them; those that are local are not wrapped, and named to be complete. */
#define MPI_PLAIN(X) \
    X(Abort, abort, ABORTS) X(Barrier, barrier, TIMED) X(Barrier_init, barrier_init, TIMED) X(Buffer_flush, buffer_flush, TIMED) \
    X(Buffer_iflush, buffer_iflush, TIMED) X(Cancel, cancel, TIMED) X(Cart_create, cart_create, TIMED) X(Cart_map, cart_map, TIMED) \
    X(Cart_sub, cart_sub, TIMED) X(Comm_accept, comm_accept, TIMED) X(Comm_connect, comm_connect, TIMED) \
    X(Comm_create, comm_create, TIMED) X(Comm_create_from_group, comm_create_from_group, TIMED) \
    X(Comm_create_group, comm_create_group, TIMED) X(Comm_disconnect, comm_disconnect, TIMED) X(Comm_dup, comm_dup, TIMED) \
    X(Comm_dup_with_info, comm_dup_with_info, TIMED) X(Comm_flush_buffer, comm_flush_buffer, TIMED) X(Comm_free, comm_free, TIMED) \
    X(Comm_idup, comm_idup, TIMED) X(Comm_idup_with_info, comm_idup_with_info, TIMED) X(Comm_iflush_buffer, comm_iflush_buffer, TIMED) \
    X(Comm_join, comm_join, TIMED) X(Comm_set_info, comm_set_info, TIMED) X(Comm_spawn, comm_spawn, TIMED) \
    X(Comm_spawn_multiple, comm_spawn_multiple, TIMED) X(Comm_split, comm_split, TIMED) X(Comm_split_type, comm_split_type, TIMED) \
    X(Compare_and_swap, compare_and_swap, TIMED) X(Dist_graph_create, dist_graph_create, TIMED) \
    X(Dist_graph_create_adjacent, dist_graph_create_adjacent, TIMED) X(Fetch_and_op, fetch_and_op, TIMED) \
    X(File_close, file_close, TIMED) X(File_delete, file_delete, TIMED) X(File_get_position_shared, file_get_position_shared, TIMED) \
    X(File_get_size, file_get_size, TIMED) X(File_open, file_open, TIMED) X(File_preallocate, file_preallocate, TIMED) \
    X(File_read_all_end, file_read_all_end, TIMED) X(File_read_at_all_end, file_read_at_all_end, TIMED) \
    X(File_read_ordered_end, file_read_ordered_end, TIMED) X(File_seek_shared, file_seek_shared, TIMED) \
    X(File_set_atomicity, file_set_atomicity, TIMED) X(File_set_info, file_set_info, TIMED) X(File_set_size, file_set_size, TIMED) \
    X(File_set_view, file_set_view, TIMED) X(File_sync, file_sync, TIMED) X(File_write_all_end, file_write_all_end, TIMED) \
    X(File_write_at_all_end, file_write_at_all_end, TIMED) X(File_write_ordered_end, file_write_ordered_end, TIMED) \
    X(Finalize, finalize, ENDS) X(Graph_create, graph_create, TIMED) X(Graph_map, graph_map, TIMED) X(Ibarrier, ibarrier, TIMED) \
    X(Improbe, improbe, TIMED) X(Init, init, BEGINS) X(Init_thread, init_thread, BEGINS) X(Intercomm_create, intercomm_create, TIMED) \
    X(Intercomm_create_from_groups, intercomm_create_from_groups, TIMED) X(Intercomm_merge, intercomm_merge, TIMED) \
    X(Iprobe, iprobe, TIMED) X(Lookup_name, lookup_name, TIMED) X(Mprobe, mprobe, TIMED) X(Parrived, parrived, TIMED) \
    X(Pready, pready, TIMED) X(Pready_list, pready_list, TIMED) X(Pready_range, pready_range, TIMED) X(Precv_init, precv_init, TIMED) \
    X(Probe, probe, TIMED) X(Psend_init, psend_init, TIMED) X(Publish_name, publish_name, TIMED) \
    X(Request_get_status, request_get_status, TIMED) X(Request_get_status_all, request_get_status_all, TIMED) \
    X(Request_get_status_any, request_get_status_any, TIMED) X(Request_get_status_some, request_get_status_some, TIMED) \
    X(Session_finalize, session_finalize, ENDS) X(Session_flush_buffer, session_flush_buffer, TIMED) \
    X(Session_iflush_buffer, session_iflush_buffer, TIMED) X(Session_init, session_init, TIMED) X(Start, start, TIMED) \
    X(Startall, startall, TIMED) X(Test, test, TIMED) X(Testall, testall, TIMED) X(Testany, testany, TIMED) X(Testsome, testsome, TIMED) \
    X(Unpublish_name, unpublish_name, TIMED) X(Wait, wait, TIMED) X(Waitall, waitall, TIMED) X(Waitany, waitany, TIMED) \
    X(Waitsome, waitsome, TIMED) X(Win_complete, win_complete, TIMED) X(Win_create_dynamic, win_create_dynamic, TIMED) \
    X(Win_fence, win_fence, TIMED) X(Win_flush, win_flush, TIMED) X(Win_flush_all, win_flush_all, TIMED) \
    X(Win_flush_local, win_flush_local, TIMED) X(Win_flush_local_all, win_flush_local_all, TIMED) X(Win_free, win_free, TIMED) \
    X(Win_lock, win_lock, TIMED) X(Win_lock_all, win_lock_all, TIMED) X(Win_post, win_post, TIMED) X(Win_set_info, win_set_info, TIMED) \
    X(Win_start, win_start, TIMED) X(Win_sync, win_sync, TIMED) X(Win_test, win_test, TIMED) X(Win_unlock, win_unlock, TIMED) \
    X(Win_unlock_all, win_unlock_all, TIMED) X(Win_wait, win_wait, TIMED)
#define MPI_LARGE(X) \
    X(Accumulate, accumulate, TIMED) X(Allgather, allgather, TIMED) X(Allgather_init, allgather_init, TIMED) \
    X(Allgatherv, allgatherv, TIMED) X(Allgatherv_init, allgatherv_init, TIMED) X(Allreduce, allreduce, TIMED) \
    X(Allreduce_init, allreduce_init, TIMED) X(Alltoall, alltoall, TIMED) X(Alltoall_init, alltoall_init, TIMED) \
    X(Alltoallv, alltoallv, TIMED) X(Alltoallv_init, alltoallv_init, TIMED) X(Alltoallw, alltoallw, TIMED) \
    X(Alltoallw_init, alltoallw_init, TIMED) X(Bcast, bcast, TIMED) X(Bcast_init, bcast_init, TIMED) X(Bsend, bsend, TIMED) \
    X(Bsend_init, bsend_init, TIMED) X(Buffer_detach, buffer_detach, TIMED) X(Comm_detach_buffer, comm_detach_buffer, TIMED) \
    X(Exscan, exscan, TIMED) X(Exscan_init, exscan_init, TIMED) X(File_iread, file_iread, TIMED) \
    X(File_iread_all, file_iread_all, TIMED) X(File_iread_at, file_iread_at, TIMED) X(File_iread_at_all, file_iread_at_all, TIMED) \
    X(File_iread_shared, file_iread_shared, TIMED) X(File_iwrite, file_iwrite, TIMED) X(File_iwrite_all, file_iwrite_all, TIMED) \
    X(File_iwrite_at, file_iwrite_at, TIMED) X(File_iwrite_at_all, file_iwrite_at_all, TIMED) \
    X(File_iwrite_shared, file_iwrite_shared, TIMED) X(File_read, file_read, TIMED) X(File_read_all, file_read_all, TIMED) \
    X(File_read_all_begin, file_read_all_begin, TIMED) X(File_read_at, file_read_at, TIMED) X(File_read_at_all, file_read_at_all, TIMED) \
    X(File_read_at_all_begin, file_read_at_all_begin, TIMED) X(File_read_ordered, file_read_ordered, TIMED) \
    X(File_read_ordered_begin, file_read_ordered_begin, TIMED) X(File_read_shared, file_read_shared, TIMED) \
    X(File_write, file_write, TIMED) X(File_write_all, file_write_all, TIMED) X(File_write_all_begin, file_write_all_begin, TIMED) \
    X(File_write_at, file_write_at, TIMED) X(File_write_at_all, file_write_at_all, TIMED) \
    X(File_write_at_all_begin, file_write_at_all_begin, TIMED) X(File_write_ordered, file_write_ordered, TIMED) \
    X(File_write_ordered_begin, file_write_ordered_begin, TIMED) X(File_write_shared, file_write_shared, TIMED) X(Gather, gather, TIMED) \
    X(Gather_init, gather_init, TIMED) X(Gatherv, gatherv, TIMED) X(Gatherv_init, gatherv_init, TIMED) X(Get, get, TIMED) \
    X(Get_accumulate, get_accumulate, TIMED) X(Iallgather, iallgather, TIMED) X(Iallgatherv, iallgatherv, TIMED) \
    X(Iallreduce, iallreduce, TIMED) X(Ialltoall, ialltoall, TIMED) X(Ialltoallv, ialltoallv, TIMED) X(Ialltoallw, ialltoallw, TIMED) \
    X(Ibcast, ibcast, TIMED) X(Ibsend, ibsend, TIMED) X(Iexscan, iexscan, TIMED) X(Igather, igather, TIMED) X(Igatherv, igatherv, TIMED) \
    X(Imrecv, imrecv, TIMED) X(Ineighbor_allgather, ineighbor_allgather, TIMED) X(Ineighbor_allgatherv, ineighbor_allgatherv, TIMED) \
    X(Ineighbor_alltoall, ineighbor_alltoall, TIMED) X(Ineighbor_alltoallv, ineighbor_alltoallv, TIMED) \
    X(Ineighbor_alltoallw, ineighbor_alltoallw, TIMED) X(Irecv, irecv, TIMED) X(Ireduce, ireduce, TIMED) \
    X(Ireduce_scatter, ireduce_scatter, TIMED) X(Ireduce_scatter_block, ireduce_scatter_block, TIMED) X(Irsend, irsend, TIMED) \
    X(Iscan, iscan, TIMED) X(Iscatter, iscatter, TIMED) X(Iscatterv, iscatterv, TIMED) X(Isend, isend, TIMED) \
    X(Isendrecv, isendrecv, TIMED) X(Isendrecv_replace, isendrecv_replace, TIMED) X(Issend, issend, TIMED) X(Mrecv, mrecv, TIMED) \
    X(Neighbor_allgather, neighbor_allgather, TIMED) X(Neighbor_allgather_init, neighbor_allgather_init, TIMED) \
    X(Neighbor_allgatherv, neighbor_allgatherv, TIMED) X(Neighbor_allgatherv_init, neighbor_allgatherv_init, TIMED) \
    X(Neighbor_alltoall, neighbor_alltoall, TIMED) X(Neighbor_alltoall_init, neighbor_alltoall_init, TIMED) \
    X(Neighbor_alltoallv, neighbor_alltoallv, TIMED) X(Neighbor_alltoallv_init, neighbor_alltoallv_init, TIMED) \
    X(Neighbor_alltoallw, neighbor_alltoallw, TIMED) X(Neighbor_alltoallw_init, neighbor_alltoallw_init, TIMED) X(Put, put, TIMED) \
    X(Raccumulate, raccumulate, TIMED) X(Recv, recv, TIMED) X(Recv_init, recv_init, TIMED) X(Reduce, reduce, TIMED) \
    X(Reduce_init, reduce_init, TIMED) X(Reduce_scatter, reduce_scatter, TIMED) X(Reduce_scatter_block, reduce_scatter_block, TIMED) \
    X(Reduce_scatter_block_init, reduce_scatter_block_init, TIMED) X(Reduce_scatter_init, reduce_scatter_init, TIMED) \
    X(Rget, rget, TIMED) X(Rget_accumulate, rget_accumulate, TIMED) X(Rput, rput, TIMED) X(Rsend, rsend, TIMED) \
    X(Rsend_init, rsend_init, TIMED) X(Scan, scan, TIMED) X(Scan_init, scan_init, TIMED) X(Scatter, scatter, TIMED) \
    X(Scatter_init, scatter_init, TIMED) X(Scatterv, scatterv, TIMED) X(Scatterv_init, scatterv_init, TIMED) X(Send, send, TIMED) \
    X(Send_init, send_init, TIMED) X(Sendrecv, sendrecv, TIMED) X(Sendrecv_replace, sendrecv_replace, TIMED) \
    X(Session_detach_buffer, session_detach_buffer, TIMED) X(Ssend, ssend, TIMED) X(Ssend_init, ssend_init, TIMED) \
    X(Win_allocate, win_allocate, TIMED) X(Win_allocate_shared, win_allocate_shared, TIMED) X(Win_create, win_create, TIMED)
#define MPI_LOCAL(X) \
    X(Abi_get_fortran_booleans) X(Abi_get_fortran_info) X(Abi_get_info) X(Abi_get_version) X(Abi_set_fortran_booleans) \
    X(Abi_set_fortran_info) X(Add_error_class) X(Add_error_code) X(Add_error_string) X(Address) X(Aint_add) X(Aint_diff) X(Alloc_mem) \
    X(Attr_delete) X(Attr_get) X(Attr_put) X(Buffer_attach) X(Cart_coords) X(Cart_get) X(Cart_rank) X(Cart_shift) X(Cartdim_get) \
    X(Close_port) X(Comm_attach_buffer) X(Comm_c2f) X(Comm_call_errhandler) X(Comm_compare) X(Comm_create_errhandler) \
    X(Comm_create_keyval) X(Comm_delete_attr) X(Comm_f2c) X(Comm_free_keyval) X(Comm_fromint) X(Comm_get_attr) X(Comm_get_errhandler) \
    X(Comm_get_info) X(Comm_get_name) X(Comm_get_parent) X(Comm_group) X(Comm_rank) X(Comm_remote_group) X(Comm_remote_size) \
    X(Comm_set_attr) X(Comm_set_errhandler) X(Comm_set_name) X(Comm_size) X(Comm_test_inter) X(Comm_toint) X(Dims_create) \
    X(Dist_graph_neighbors) X(Dist_graph_neighbors_count) X(Errhandler_c2f) X(Errhandler_create) X(Errhandler_f2c) X(Errhandler_free) \
    X(Errhandler_fromint) X(Errhandler_get) X(Errhandler_set) X(Errhandler_toint) X(Error_class) X(Error_string) X(F_sync_reg) \
    X(File_c2f) X(File_call_errhandler) X(File_create_errhandler) X(File_f2c) X(File_fromint) X(File_get_amode) X(File_get_atomicity) \
    X(File_get_byte_offset) X(File_get_errhandler) X(File_get_group) X(File_get_info) X(File_get_position) X(File_get_type_extent) \
    X(File_get_view) X(File_seek) X(File_set_errhandler) X(File_toint) X(Finalized) X(Free_mem) X(Get_address) X(Get_count) \
    X(Get_elements) X(Get_elements_x) X(Get_hw_resource_info) X(Get_library_version) X(Get_processor_name) X(Get_version) X(Graph_get) \
    X(Graph_neighbors) X(Graph_neighbors_count) X(Graphdims_get) X(Grequest_complete) X(Grequest_start) X(Group_c2f) X(Group_compare) \
    X(Group_difference) X(Group_excl) X(Group_f2c) X(Group_free) X(Group_from_session_pset) X(Group_fromint) X(Group_incl) \
    X(Group_intersection) X(Group_range_excl) X(Group_range_incl) X(Group_rank) X(Group_size) X(Group_toint) X(Group_translate_ranks) \
    X(Group_union) X(Info_c2f) X(Info_create) X(Info_create_env) X(Info_delete) X(Info_dup) X(Info_f2c) X(Info_free) X(Info_fromint) \
    X(Info_get) X(Info_get_nkeys) X(Info_get_nthkey) X(Info_get_string) X(Info_get_valuelen) X(Info_set) X(Info_toint) X(Initialized) \
    X(Is_thread_main) X(Keyval_create) X(Keyval_free) X(Message_c2f) X(Message_f2c) X(Message_fromint) X(Message_toint) X(Op_c2f) \
    X(Op_commutative) X(Op_create) X(Op_f2c) X(Op_free) X(Op_fromint) X(Op_toint) X(Open_port) X(Pack) X(Pack_external) \
    X(Pack_external_size) X(Pack_size) X(Pcontrol) X(Query_thread) X(Reduce_local) X(Register_datarep) X(Remove_error_class) \
    X(Remove_error_code) X(Remove_error_string) X(Request_c2f) X(Request_f2c) X(Request_free) X(Request_fromint) X(Request_toint) \
    X(Session_attach_buffer) X(Session_c2f) X(Session_call_errhandler) X(Session_create_errhandler) X(Session_f2c) X(Session_fromint) \
    X(Session_get_errhandler) X(Session_get_info) X(Session_get_nth_pset) X(Session_get_num_psets) X(Session_get_pset_info) \
    X(Session_set_errhandler) X(Session_toint) X(Sizeof) X(Status_c2f) X(Status_c2f08) X(Status_f082c) X(Status_f082f) X(Status_f2c) \
    X(Status_f2f08) X(Status_get_error) X(Status_get_source) X(Status_get_tag) X(Status_set_cancelled) X(Status_set_elements) \
    X(Status_set_elements_x) X(Status_set_error) X(Status_set_source) X(Status_set_tag) X(T_category_changed) \
    X(T_category_get_categories) X(T_category_get_cvars) X(T_category_get_events) X(T_category_get_index) X(T_category_get_info) \
    X(T_category_get_num) X(T_category_get_num_events) X(T_category_get_pvars) X(T_cvar_get_index) X(T_cvar_get_info) X(T_cvar_get_num) \
    X(T_cvar_handle_alloc) X(T_cvar_handle_free) X(T_cvar_read) X(T_cvar_write) X(T_enum_get_info) X(T_enum_get_item) \
    X(T_event_callback_get_info) X(T_event_callback_set_info) X(T_event_copy) X(T_event_get_index) X(T_event_get_info) \
    X(T_event_get_num) X(T_event_get_source) X(T_event_get_timestamp) X(T_event_handle_alloc) X(T_event_handle_free) \
    X(T_event_handle_get_info) X(T_event_handle_set_info) X(T_event_read) X(T_event_register_callback) X(T_event_set_dropped_handler) \
    X(T_finalize) X(T_init_thread) X(T_pvar_get_index) X(T_pvar_get_info) X(T_pvar_get_num) X(T_pvar_handle_alloc) X(T_pvar_handle_free) \
    X(T_pvar_read) X(T_pvar_readreset) X(T_pvar_reset) X(T_pvar_session_create) X(T_pvar_session_free) X(T_pvar_start) X(T_pvar_stop) \
    X(T_pvar_write) X(T_source_get_info) X(T_source_get_num) X(T_source_get_timestamp) X(Test_cancelled) X(Topo_test) X(Type_c2f) \
    X(Type_commit) X(Type_contiguous) X(Type_create_darray) X(Type_create_f90_complex) X(Type_create_f90_integer) \
    X(Type_create_f90_real) X(Type_create_hindexed) X(Type_create_hindexed_block) X(Type_create_hvector) X(Type_create_indexed_block) \
    X(Type_create_keyval) X(Type_create_resized) X(Type_create_struct) X(Type_create_subarray) X(Type_delete_attr) X(Type_dup) \
    X(Type_extent) X(Type_f2c) X(Type_free) X(Type_free_keyval) X(Type_fromint) X(Type_get_attr) X(Type_get_contents) \
    X(Type_get_envelope) X(Type_get_extent) X(Type_get_extent_x) X(Type_get_name) X(Type_get_true_extent) X(Type_get_true_extent_x) \
    X(Type_get_value_index) X(Type_hindexed) X(Type_hvector) X(Type_indexed) X(Type_lb) X(Type_match_size) X(Type_set_attr) \
    X(Type_set_name) X(Type_size) X(Type_size_x) X(Type_struct) X(Type_toint) X(Type_ub) X(Type_vector) X(Unpack) X(Unpack_external) \
    X(Win_attach) X(Win_c2f) X(Win_call_errhandler) X(Win_create_errhandler) X(Win_create_keyval) X(Win_delete_attr) X(Win_detach) \
    X(Win_f2c) X(Win_free_keyval) X(Win_fromint) X(Win_get_attr) X(Win_get_errhandler) X(Win_get_group) X(Win_get_info) X(Win_get_name) \
    X(Win_set_attr) X(Win_set_errhandler) X(Win_set_name) X(Win_shared_query) X(Win_toint) X(Wtick) X(Wtime)
