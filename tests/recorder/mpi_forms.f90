! `usual` of mpi_forms.c in Fortran: with -DF77, -DF90 and -DF08 for its three ways to MPI, with -DLARGE with large counts.
program forms
#if defined(F08)
  use mpi_f08
#elif defined(F90)
  use mpi
#endif
  implicit none
#ifdef F77
  include 'mpif.h'
#endif
#ifdef LARGE
  integer(kind=MPI_COUNT_KIND), parameter :: n = 1
#else
  integer, parameter :: n = 1
#endif
  integer :: rank, error, one(1), got(1)
  one(1) = 1
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  if (rank == 0) call sleep_briefly()
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Allreduce(one, got, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0) call MPI_Send(one, n, MPI_INTEGER, 1, 0, MPI_COMM_WORLD, error)
  if (rank == 1) call MPI_Recv(got, n, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  call MPI_Finalize(error)
contains
  subroutine sleep_briefly()
    integer(kind=8) :: now, start, rate
    call system_clock(start, rate)
    now = start
    do while (now - start < rate / 20)
      call system_clock(now)
    end do
  end subroutine
end program
