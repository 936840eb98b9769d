/* Preloaded into a broker: fsync, fdatasync and msync fail with EIO once the file named by
   LAKEMQ_TEST_FAIL_FSYNC exists, as a dying disk makes them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int failing(void) {
    const char *trigger = getenv("LAKEMQ_TEST_FAIL_FSYNC");
    if (trigger == NULL || access(trigger, F_OK) != 0) {
        return 0;
    }
    errno = EIO;
    return 1;
}

int fsync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return failing() ? -1 : next(fd);
}

int fdatasync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return failing() ? -1 : next(fd);
}

int msync(void *address, size_t length, int flags) {
    int (*next)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    return failing() ? -1 : next(address, length, flags);
}
