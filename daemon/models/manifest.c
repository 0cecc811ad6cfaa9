// SPDX-License-Identifier: MIT
#include "manifest.h"
#include "hash.h"
#include "set_error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC	  "TXDAKEPT"
#define VERSION	  1
#define MAX_BYTES (1ull << 40)
#define SEALS	  (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* The file format; numbers in native byte order, since it never leaves the machine. */
struct form {
	char magic[8];
	uint32_t version, bytes;
	uint32_t rank, tp;
	char backend[16], boot_id[40], driver[24], chip[40];
	char source[MANIFEST_PATH], case_dir[MANIFEST_PATH];
	uint32_t crc32c, zero;
	uint64_t weight_bytes, file_device, file_inode, file_mtime_ns, file_ctime_ns, memory_id;
	uint64_t inode;
	uint64_t hash; /* of all preceding bytes */
};
_Static_assert(offsetof(struct form, hash) + sizeof(uint64_t) == sizeof(struct form), "no padding");

static uint64_t hash_of(const struct form *f)
{
	return hash_fnv1a(HASH_FNV1A, f, offsetof(struct form, hash));
}

static bool is_text(const char *s, size_t room, bool may_be_empty)
{
	size_t n = strnlen(s, room);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			return false;
	return n < room && (n || may_be_empty);
}

/* Conditions that every manifest must meet, whatever its origin. */
static int check(const struct form *f, char *err, size_t errlen)
{
	if (!is_text(f->backend, sizeof(f->backend), false) ||
	    !is_text(f->boot_id, sizeof(f->boot_id), true) ||
	    !is_text(f->driver, sizeof(f->driver), true) ||
	    !is_text(f->chip, sizeof(f->chip), false) ||
	    !is_text(f->source, sizeof(f->source), false) ||
	    !is_text(f->case_dir, sizeof(f->case_dir), false))
		return set_error(-EINVAL, err, errlen, "the manifest has an invalid string");
	if (!f->tp || f->tp > TXDA_MAX_CHIPS_PER_GROUP || f->rank >= f->tp || f->zero) {
		snprintf(err, errlen, "the manifest says rank %u of %u", f->rank, f->tp);
		return -EINVAL;
	}
	if (!f->weight_bytes || f->weight_bytes > MAX_BYTES) {
		snprintf(err, errlen, "the manifest says %llu bytes of weights",
			 (unsigned long long)f->weight_bytes);
		return -EINVAL;
	}
	return 0;
}

static void to_form(const struct manifest *m, struct form *f)
{
	*f = (struct form){
		.version = VERSION,
		.bytes = sizeof(*f),
		.rank = m->rank,
		.tp = m->tp,
		.crc32c = m->info.crc32c,
		.weight_bytes = m->info.bytes,
		.file_device = m->info.file_device,
		.file_inode = m->info.file_inode,
		.file_mtime_ns = m->info.file_mtime_ns,
		.file_ctime_ns = m->info.file_ctime_ns,
		.memory_id = m->info.memory_id,
		.inode = m->inode,
	};
	memcpy(f->magic, MAGIC, sizeof(f->magic));
	memcpy(f->backend, m->backend, sizeof(f->backend));
	memcpy(f->boot_id, m->boot_id, sizeof(f->boot_id));
	memcpy(f->driver, m->driver, sizeof(f->driver));
	memcpy(f->chip, m->chip, sizeof(f->chip));
	memcpy(f->source, m->source, sizeof(f->source));
	memcpy(f->case_dir, m->case_dir, sizeof(f->case_dir));
	f->hash = hash_of(f);
}

static void from_form(const struct form *f, struct manifest *m)
{
	*m = (struct manifest){.rank = f->rank, .tp = f->tp, .inode = f->inode};
	m->info = TXDA_INIT(struct txda_weights_info);
	m->info.bytes = f->weight_bytes;
	m->info.crc32c = f->crc32c;
	m->info.file_device = f->file_device;
	m->info.file_inode = f->file_inode;
	m->info.file_mtime_ns = f->file_mtime_ns;
	m->info.file_ctime_ns = f->file_ctime_ns;
	m->info.memory_id = f->memory_id;
	memcpy(m->backend, f->backend, sizeof(m->backend));
	memcpy(m->boot_id, f->boot_id, sizeof(m->boot_id));
	memcpy(m->driver, f->driver, sizeof(m->driver));
	memcpy(m->chip, f->chip, sizeof(m->chip));
	memcpy(m->source, f->source, sizeof(m->source));
	memcpy(m->case_dir, f->case_dir, sizeof(m->case_dir));
}

int manifest_write(const struct manifest *m, int *ret_fd, char *err, size_t errlen)
{
	struct form f;
	int fd, error;

	to_form(m, &f);
	error = check(&f, err, errlen);
	if (error)
		return error;
	fd = memfd_create("txda-manifest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || pwrite(fd, &f, sizeof(f), 0) != (ssize_t)sizeof(f) ||
	    fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		error = errno ? -errno : -EIO;
		snprintf(err, errlen, "a manifest cannot be made: %s", strerror(-error));
		if (fd >= 0)
			close(fd);
		return error;
	}
	*ret_fd = fd;
	return 0;
}

int manifest_read(int fd, struct manifest *ret, char *err, size_t errlen)
{
	int seals = fcntl(fd, F_GET_SEALS), error;
	struct form f;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size != (off_t)sizeof(f))
		return set_error(-EINVAL, err, errlen,
				 "the manifest is malformed, or has another version");
	if (seals < 0 || (seals & SEALS) != SEALS)
		return set_error(-EPERM, err, errlen, "the manifest is not sealed");
	if (pread(fd, &f, sizeof(f), 0) != (ssize_t)sizeof(f))
		return set_error(-EIO, err, errlen, "the manifest cannot be read");
	if (memcmp(f.magic, MAGIC, sizeof(f.magic)) || f.version != VERSION || f.bytes != sizeof(f))
		return set_error(-EINVAL, err, errlen,
				 "the manifest is malformed, or has another version");
	if (f.hash != hash_of(&f))
		return set_error(-EBADMSG, err, errlen, "the manifest has a wrong hash");
	error = check(&f, err, errlen);
	if (error)
		return error;
	from_form(&f, ret);
	return 0;
}
