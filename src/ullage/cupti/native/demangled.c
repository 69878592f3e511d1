/* Names of kernels as people write them: C++'s own function makes them, where the process has it or can load it. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 8192, LONGEST_MADE = 65536 }; /* a name can be made to grow without bound: templates of templates */

typedef char *demangle_function(const char *mangled, char *room, size_t *size, int *status);
static demangle_function *demangle;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_up(void) {
    static const char *const libraries[] = {"libstdc++.so.6", "libc++abi.so.1", NULL};
    demangle = (demangle_function *)dlsym(RTLD_DEFAULT, "__cxa_demangle");
    for (int i = 0; !demangle && libraries[i]; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_LOCAL);
        if (library) demangle = (demangle_function *)dlsym(library, "__cxa_demangle");
    }
}

/* To be freed; NULL where the name is none of C++'s, or can't be told otherwise. */
char *demangled(const char *name, size_t length) {
    int status = -1;
    if (length < 3 || length > LONGEST || name[0] != '_' || name[1] != 'Z') return NULL;
    pthread_once(&once, look_up);
    char *made = demangle ? demangle(name, NULL, NULL, &status) : NULL;
    if (made && (status || strnlen(made, LONGEST_MADE) == LONGEST_MADE)) free(made), made = NULL;
    return made;
}
