/* A file system with faults, for soak.py --faults: preloaded, it stands before the C library.
 *
 * While FAULTS names a share in per mille, that share of the calls that write to a file called *.jsonl fails: half of
 * the bytes are written, or they are and then the call fails with EIO, or with ENOSPC; so do fsync and ftruncate, of
 * which nothing is done. Every process draws its own faults, from FAULTS_SEED.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned long long state;

static unsigned draw(unsigned below) {
    if (!state) {
        const char *seed = getenv("FAULTS_SEED");
        state = (seed ? strtoull(seed, NULL, 10) : 0) * 2862933555777941757ULL + 3037000493ULL;
    }
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)((state >> 33) % below);
}

static int is_log(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 6) return 0;
    path[length] = 0;
    return strcmp(path + length - 6, ".jsonl") == 0;
}

static int faulty(int file) {
    const char *share = getenv("FAULTS");
    return share && is_log(file) && (int)draw(1000) < atoi(share);
}

static ssize_t fail(ssize_t done, size_t asked) {
    unsigned kind = draw(3);
    if (kind == 0 && asked > 1) return done; /* a short write */
    errno = kind == 1 ? EIO : ENOSPC;
    return -1;
}

#define POSITIONED(name, offset_type)                                                                \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) {                      \
        static ssize_t (*next)(int, const void *, size_t, offset_type);                              \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                   \
        return faulty(file) ? fail(next(file, data, size / 2, offset), size) : next(file, data, size, offset); \
    }
POSITIONED(pwrite, off_t)
POSITIONED(pwrite64, off64_t)

ssize_t write(int file, const void *data, size_t size) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "write");
    return faulty(file) ? fail(next(file, data, size / 2), size) : next(file, data, size);
}

#define REFUSED(name, arguments, passed, file)                 \
    int name arguments {                                       \
        static int(*next) arguments;                           \
        if (!next) next = dlsym(RTLD_NEXT, #name);             \
        if (faulty(file)) {                                    \
            errno = draw(2) ? EIO : ENOSPC;                    \
            return -1;                                         \
        }                                                      \
        return next passed;                                    \
    }
REFUSED(fsync, (int file), (file), file)
REFUSED(ftruncate, (int file, off_t size), (file, size), file)
REFUSED(ftruncate64, (int file, off64_t size), (file, size), file)
