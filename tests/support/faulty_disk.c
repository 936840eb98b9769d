/* Preloaded into a broker: makes its disk ill. In the directory named by LAKEMQ_TEST_DISK the file
   `fail` lets fsync, fdatasync and msync fail with EIO, and the file `slow` lets them take a second. The
   file `fail_write` lets pwrite fail with EIO when half of the bytes are written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int exists(const char *name) {
    char path[4096];
    const char *directory = getenv("LAKEMQ_TEST_DISK");
    if (directory == NULL) {
        return 0;
    }
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    ssize_t (*next)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if (!exists("fail_write")) {
        return next(fd, bytes, count, offset);
    }
    next(fd, bytes, count / 2, offset);
    errno = EIO;
    return -1;
}

static int ill(void) {
    if (exists("slow")) {
        sleep(1);
    }
    if (!exists("fail")) {
        return 0;
    }
    errno = EIO;
    return 1;
}

int fsync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return ill() ? -1 : next(fd);
}

int fdatasync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return ill() ? -1 : next(fd);
}

int msync(void *address, size_t length, int flags) {
    int (*next)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    return ill() ? -1 : next(address, length, flags);
}
