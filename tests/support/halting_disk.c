/* Preloaded into a process and what it starts: holds a thread at a file, for a test that kills all of it there.
   LAKEMQ_TEST_HALT is "FIFO PROGRAM SIDE NUMBER PATTERN": in processes of that name, at so many files that match the pattern
   of fnmatch(3), before or after one is renamed or linked to, or before one is made, the thread says so in the pipe and goes
   no further. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int matched;

static void halt_at(const char *path, const char *side) {
    char fifo[1024], program[64], wanted[8], pattern[1024];
    int number;
    const char *said = getenv("LAKEMQ_TEST_HALT");
    const char *wants = "%1023s %63s %7s %d %1023s";
    if (said == NULL || sscanf(said, wants, fifo, program, wanted, &number, pattern) != 5) {
        return;
    }
    if (strcmp(program, program_invocation_short_name) != 0) {
        return;
    }
    if (strcmp(side, wanted) != 0 || fnmatch(pattern, path, 0) != 0 || ++matched != number) {
        return;
    }
    int pipe = ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(fifo, O_WRONLY);
    if (write(pipe, "0\n", 2) == 2) {
        for (;;) {
            pause();
        }
    }
}

int rename(const char *from, const char *to) {
    int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    halt_at(to, "before");
    int result = next(from, to);
    if (result == 0) {
        halt_at(to, "after");
    }
    return result;
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    int (*next)(int, const char *, int, const char *, int) =
        (int (*)(int, const char *, int, const char *, int))dlsym(RTLD_NEXT, "linkat");
    halt_at(to, "before");
    int result = next(from_at, from, to_at, to, flags);
    if (result == 0) {
        halt_at(to, "after");
    }
    return result;
}

int open64(const char *path, int flags, ...) {
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (flags & O_CREAT) {
        halt_at(path, "before");
    }
    return next(path, flags, mode);
}
