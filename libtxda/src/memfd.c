// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "memfd.h"

int txda__memfd_check(struct txda_context *context, int fd, bool read_only, uint64_t *ret_bytes)
{
	int seals, mode;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return txda__fail(context, -errno, "fd %d: %s", fd, strerror(errno));
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !S_ISREG(st.st_mode))
		return txda__fail(context, -EINVAL, "fd %d is not a memfd of an exported buffer",
				  fd);
	if (!(seals & F_SEAL_SHRINK))
		return txda__fail(context, -EPERM, "the memfd is not sealed against shrinking");
	mode = fcntl(fd, F_GETFL) & O_ACCMODE;
	if (mode == O_WRONLY ||
	    (!read_only && (mode != O_RDWR || seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))))
		return txda__fail(context, -EACCES, "the memfd does not allow %s",
				  read_only ? "reading" : "writing");
	if (st.st_size <= 0 || st.st_size > (off_t)(1ll << 40) || st.st_size % (off_t)TXDA__PAGE)
		return txda__fail(context, -EINVAL,
				  "the memfd has %lld bytes; it must be whole pages up to 1 TiB",
				  (long long)st.st_size);
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int txda__memfd_check_frozen(struct txda_context *context, int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_GROW) || !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return txda__fail(context, -EPERM, "the memfd is not sealed against writing");
	return 0;
}
