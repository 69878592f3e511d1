/* Regions in C and C++: named parts of a program, for the trees of `ullage run`.
 *
 *     #include <ullage.h>                      cc -I$(ullage run --include) program.c
 *
 *     ULLAGE_REGION_BEGIN("forward");          C99
 *     ...
 *     ULLAGE_REGION_END();
 *
 *     ullage::region here("forward");          C++11: until the end of the block, exceptions included
 *
 * Regions nest, may be entered again, and belong to the thread that begins them; END ends the innermost that this thread has begun so.
 * Names are UTF-8. A program needs no library of Ullage's to be compiled, linked or run: the recorder is looked for once, among what was
 * preloaded, and where it isn't there (outside `ullage run`, in a static program, on another system than Linux) a region does nothing.
 * With a C library older than glibc 2.34 link with -ldl. -DULLAGE_NO_REGIONS leaves regions out altogether.
 *
 * One file that may be copied into a program: SPDX-License-Identifier: Apache-2.0 */
#ifndef ULLAGE_H
#define ULLAGE_H

#include <stdint.h>

#if defined(__linux__) && !defined(ULLAGE_NO_REGIONS)

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* The address of a function of the recorder, NULL without one. A cache holds its own address until it has been looked for; threads that
 * look at the same time find the same. dlerror() forgets that nothing was found, which is no mistake of the program's. */
static inline void *ullage_found(const char *name, void **cache) {
    void *found = __atomic_load_n(cache, __ATOMIC_RELAXED);
    if (found != cache) return found;
    found = dlsym(NULL, name); /* RTLD_DEFAULT, which has a name only where _GNU_SOURCE is defined */
    if (!found) (void)dlerror();
    __atomic_store_n(cache, found, __ATOMIC_RELAXED);
    return found;
}

/* Begins a region that ullage_end ends. */
static inline void ullage_begin(const char *name) {
    static void *cache = &cache;
    void *found = ullage_found("ullage_region_push", &cache);
    void (*push)(const char *);
    if (!found) return;
    memcpy(&push, &found, sizeof push); /* ISO C has no cast for it */
    push(name);
}

/* Ends the innermost region that ullage_begin has begun in this thread. */
static inline void ullage_end(void) {
    static void *cache = &cache;
    void *found = ullage_found("ullage_region_pop", &cache);
    void (*pop)(void);
    if (!found) return;
    memcpy(&pop, &found, sizeof pop);
    pop();
}

/* Begins a region and returns its number, for regions that end in another order than they began; 0 where nothing records. */
static inline uint32_t ullage_open(const char *name) {
    static void *cache = &cache;
    void *found = ullage_found("ullage_region_begin", &cache);
    uint32_t (*begin)(const char *);
    if (!found) return 0;
    memcpy(&begin, &found, sizeof begin);
    return begin(name);
}

/* Ends the region of that number, in the thread that began it; of 0 nothing. */
static inline void ullage_close(uint32_t number) {
    static void *cache = &cache;
    void *found = number ? ullage_found("ullage_region_end", &cache) : NULL;
    void (*end)(uint32_t);
    if (!found) return;
    memcpy(&end, &found, sizeof end);
    end(number);
}

#else

static inline void ullage_begin(const char *name) { (void)name; }
static inline void ullage_end(void) {}
static inline uint32_t ullage_open(const char *name) { (void)name; return 0; }
static inline void ullage_close(uint32_t number) { (void)number; }

#endif

#define ULLAGE_REGION_BEGIN(name) ullage_begin(name)
#define ULLAGE_REGION_END() ullage_end()

#ifdef __cplusplus
namespace ullage {

/* A region from here to the end of the block. */
class region {
  public:
    explicit region(const char *name) : number(ullage_open(name)) {}
    ~region() { ullage_close(number); }
    region(const region &) = delete;
    region &operator=(const region &) = delete;

  private:
    const uint32_t number;
};

} /* namespace ullage */
#endif

#endif
