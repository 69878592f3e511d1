/* NVIDIA's libnvperf_target and libnvperf_host, which libcupti counts with.
 *
 * It opens them by their bare names, and has no RUNPATH: where the linker knows none, counting ends with NOT_INITIALIZED; where it knows
 * those of a toolkit, they are taken though they may be of another release. Those beside libcupti are therefore loaded before it asks:
 * of libraries that are loaded the linker gives the first of a name. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABSENT = -1 };
static struct { const char *name, *loading; char path[PLACE]; } libraries[] = {
    {"libnvperf_target.so", "loading libnvperf_target.so", ""},
    {"libnvperf_host.so", "loading libnvperf_host.so", ""},
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

/* The library in the folder of a file; NULL where there is none. */
static void *beside(const char *file, const char *name) {
    char path[PLACE];
    const char *slash = file ? strrchr(file, '/') : NULL;
    int length = slash ? snprintf(path, sizeof path, "%.*s/%s", (int)(slash - file), file, name) : 0;
    return length > 0 && (size_t)length < sizeof path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
}

/* `function` is one of libcupti's. Where its file is a link, the libraries may lie beside either end of it. */
void perfworks_load(const void *function) {
    Dl_info cupti = {0};
    dladdr(function, &cupti);
    char *target = cupti.dli_fname ? realpath(cupti.dli_fname, NULL) : NULL;
    for (int i = 0; i < LIBRARIES; i++) {
        const char *name = libraries[i].name;
        void *found = dlopen(name, RTLD_NOW | RTLD_NOLOAD); /* libcupti would get this one anyway */
        if (!found) found = beside(cupti.dli_fname, name);
        if (!found) found = beside(target, name);
        if (!found) found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
        struct link_map *map = NULL;
        if (!found) problem(libraries[i].loading, ABSENT, dlerror());
        else if (!dlinfo(found, RTLD_DI_LINKMAP, &map) && map) snprintf(libraries[i].path, sizeof libraries[i].path, "%s", map->l_name);
    }
    free(target);
}

void perfworks_facts(struct text *json) {
    const char *before = "\"perfworks\": {";
    for (int i = 0; i < LIBRARIES; i++) {
        if (!*libraries[i].path) continue;
        text_add(json, "%s\"%s\": ", before, libraries[i].name), text_quoted(json, libraries[i].path);
        before = ", ";
    }
    if (*before == ',') text_add(json, "}, ");
}
