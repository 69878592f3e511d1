/* A program with NVTX ranges of all sorts, which the test compiles with NVTX's own headers. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

static nvtxEventAttributes_t named(int type) {
    nvtxEventAttributes_t given;
    memset(&given, 0, sizeof given);
    given.version = NVTX_VERSION, given.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE, given.messageType = type;
    return given;
}

static nvtxRangeId_t started;
static void *other_thread(void *nothing) {
    nvtxRangePushA("thread");
    nvtxRangeEnd(started);
    nvtxRangePop();
    return nothing;
}

int main(void) {
    pthread_t thread;
    nvtxEventAttributes_t ascii = named(NVTX_MESSAGE_TYPE_ASCII), wide = named(NVTX_MESSAGE_TYPE_UNICODE);
    nvtxEventAttributes_t registered = named(NVTX_MESSAGE_TYPE_REGISTERED), nothing = named(NVTX_MESSAGE_UNKNOWN);
    ascii.message.ascii = "ascii", wide.message.unicode = L"größe €𝄞", registered.message.registered = nvtxDomainRegisterStringA(NULL, "registered");
    nvtxDomainHandle_t domain = nvtxDomainCreateA("a library");

    nvtxRangePushA("outer");
    nvtxRangeId_t across = nvtxRangeStartA("across");
    nvtxRangePushEx(&ascii);
    nvtxDomainRangePushEx(domain, &registered);
    nvtxDomainRangePushEx(NULL, &registered);
    usleep(1000);
    nvtxDomainRangePop(NULL);
    nvtxDomainRangePop(domain);
    nvtxRangePop();
    nvtxRangePushEx(&wide), nvtxRangePop();
    nvtxRangePushW(L"wide"), nvtxRangePop();
    nvtxRangePushEx(&nothing), nvtxRangePop();
    nvtxRangePushA(""), nvtxRangePop();
    nvtxRangePop();
    nvtxRangeEnd(across);
    nvtxRangePop(); /* there is none */

    started = nvtxDomainRangeStartEx(NULL, &ascii);
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
    nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &ascii));
    nvtxRangeEnd(started), nvtxRangeEnd(4711);
    nvtxMarkA("a mark");
    nvtxRangeStartA("never ended");
    puts("done");
    return 0;
}
