! Regions in Fortran: named parts of a program, for the trees of `ullage run`.
!
!     use ullage                      gfortran $(ullage run --include)/ullage.f90 program.f90
!
!     call ullage_begin("forward")
!     ...
!     call ullage_end()
!
! Regions nest, may be entered again, and belong to the thread that begins them; ullage_end ends the innermost of them. Trailing blanks
! are no part of a name. A program needs no library of Ullage's: the recorder is looked for once, among what was preloaded, and where it
! isn't there (outside `ullage run`, in a static program) a region does nothing. With a C library older than glibc 2.34 link with -ldl.
!
! Fortran 2003. SPDX-License-Identifier: Apache-2.0
module ullage
   use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_f_procpointer, c_funptr, c_null_char, c_null_ptr, c_ptr
   implicit none
   private
   public :: ullage_begin, ullage_end

   abstract interface
      subroutine pushes(name) bind(c)
         import :: c_char
         character(kind=c_char), intent(in) :: name(*)
      end subroutine
      subroutine pops() bind(c)
      end subroutine
   end interface

   interface
      function dlsym(handle, name) bind(c, name="dlsym") result(address)
         import :: c_char, c_funptr, c_ptr
         type(c_ptr), value :: handle
         character(kind=c_char), intent(in) :: name(*)
         type(c_funptr) :: address
      end function
      function dlerror() bind(c, name="dlerror") result(text)
         import :: c_ptr
         type(c_ptr) :: text
      end function
   end interface

   ! Each is one word, set to the same by whichever threads look at the same time. Not associated: not looked for yet.
   procedure(pushes), pointer, save :: push => null()
   procedure(pops), pointer, save :: pop => null()

contains

   subroutine ullage_begin(name)
      character(len=*), intent(in) :: name
      if (.not. associated(push)) call look_for_push()
      if (.not. associated(push, no_push)) call push(trim(name)//c_null_char)
   end subroutine

   subroutine ullage_end()
      if (.not. associated(pop)) call look_for_pop()
      call pop()
   end subroutine

   subroutine look_for_push()
      type(c_funptr) :: found
      procedure(pushes), pointer :: theirs
      found = recorders("ullage_region_push")
      if (c_associated(found)) then
         call c_f_procpointer(found, theirs)
         push => theirs
      else
         push => no_push
      end if
   end subroutine

   subroutine look_for_pop()
      type(c_funptr) :: found
      procedure(pops), pointer :: theirs
      found = recorders("ullage_region_pop")
      if (c_associated(found)) then
         call c_f_procpointer(found, theirs)
         pop => theirs
      else
         pop => no_pop
      end if
   end subroutine

   ! The address of a function of the recorder; a null handle is RTLD_DEFAULT. dlerror forgets that nothing was found.
   function recorders(name) result(found)
      character(len=*), intent(in) :: name
      type(c_funptr) :: found
      type(c_ptr) :: forgotten
      found = dlsym(c_null_ptr, name//c_null_char)
      if (.not. c_associated(found)) forgotten = dlerror()
   end function

   subroutine no_push(name) bind(c)
      character(kind=c_char), intent(in) :: name(*)
      if (.false.) print *, name(1)
   end subroutine

   subroutine no_pop() bind(c)
   end subroutine

end module
