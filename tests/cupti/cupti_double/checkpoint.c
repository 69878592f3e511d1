/* A double of libcheckpoint (cupti_checkpoint.h), written from the documented interface: a library of its own, as NVIDIA's is.
 *
 * The device is one number, `checkpoint_double_device`. CHECKPOINT_DOUBLE_FAULTS: "save=CODE", "restore=CODE" or "free=CODE". */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_PARAMETER = 1, INVALID_OPERATION = 7, NOT_INITIALIZED = 15 };
typedef struct { size_t size; void *context; size_t reserve_device, reserve_host; uint8_t overwrite, optimizations; void *private; } Handle;
typedef struct { int value, overwrite; } State;

int checkpoint_double_device;
char checkpoint_double_calls[1024];
Handle checkpoint_double_seen; /* the options of the last Save */

static int scripted(const char *name) {
    const char *script = getenv("CHECKPOINT_DOUBLE_FAULTS");
    size_t length = strlen(name);
    strcat(strcat(checkpoint_double_calls, name), " ");
    return script && !strncmp(script, name, length) && script[length] == '=' ? atoi(script + length + 1) : SUCCESS;
}
int cuptiCheckpointSave(Handle *const handle) {
    int code = scripted("save");
    State *state = handle->private;
    if (code) return code;
    if (handle->size != sizeof *handle) return INVALID_PARAMETER;
    if (!handle->context) return NOT_INITIALIZED; /* as the real one answers, whatever context is current (CUDA 13.0, driver 580, an H200) */
    if (state && !state->overwrite) return INVALID_OPERATION;
    checkpoint_double_seen = *handle;
    if (!state) handle->private = state = calloc(1, sizeof *state);
    *state = (State){checkpoint_double_device, handle->overwrite};
    return SUCCESS;
}
int cuptiCheckpointRestore(Handle *const handle) {
    int code = scripted("restore");
    if (code) return code;
    if (handle->size != sizeof *handle) return INVALID_PARAMETER;
    if (!handle->private) return NOT_INITIALIZED;
    checkpoint_double_device = ((State *)handle->private)->value;
    return SUCCESS;
}
int cuptiCheckpointFree(Handle *const handle) {
    int code = scripted("free");
    if (code) return code;
    if (handle->size != sizeof *handle || !handle->private) return INVALID_PARAMETER;
    free(handle->private);
    handle->private = NULL;
    return SUCCESS;
}
