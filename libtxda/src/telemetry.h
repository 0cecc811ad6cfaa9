/* SPDX-License-Identifier: MIT */
/*
 * Telemetry pages, through which a process with simulated chips makes them visible to other
 * processes.
 *
 * A page is one small file, $DIR/chips-PID-N, where $DIR is the first of these that can be used:
 *	$XDG_RUNTIME_DIR/txda
 *	/run/txda		when it exists and is writable
 *	/run/txdad		when it exists and is this user's: for the system's daemon
 *	/tmp/txda-UID		a directory of that user's alone to write
 * It is replaced in place by one write(), under a checksum that also covers its length, so that a
 * reader sees whole pages only (it reads again when the checksum does not match) and neither side
 * maps a file that the other could cut short.
 *
 * Readers trust nothing: the file must be a regular file of the user who runs process PID, that
 * process must have the start time given in the page (so a page left by an ended process is ignored
 * even when the PID is reused), and each field is checked. A publishing process removes the stale
 * pages of its own user.
 *
 * Threads: not concurrently on one page.
 */
#ifndef TXDA_TELEMETRY_H
#define TXDA_TELEMETRY_H

#include "internal.h"
#include "spec.h"

#define TXDA__PAGE_MAGIC   0x54445854u /* "TXDT" */
#define TXDA__PAGE_VERSION 1

struct txda__page_chip {
	char name[64];
	char serial[32];
	char bus[32];
	uint64_t caps;
	uint64_t mem_bytes;
	uint64_t mem_used_bytes;
	uint64_t busy_ns, copy_busy_ns;
	uint64_t bytes_read, bytes_written;
	uint32_t cores;
	uint32_t power_mw;
	int32_t temp_mc;
	uint32_t clock_khz;
	uint32_t ecc_corrected, ecc_uncorrected;
	uint32_t faults;
	uint32_t lost;
	uint32_t utilisation_permille; /* UINT32_MAX: not known */
	uint32_t physical;
};

struct txda__page {
	uint32_t magic;
	uint16_t version;
	uint16_t n_chips;
	uint32_t bytes;	 /* size of the page, header included */
	uint32_t crc32c; /* of the page with this field set to 0 */
	int32_t pid;
	uint32_t reserved;
	uint64_t start_time; /* start time of the process, field 22 of /proc/PID/stat */
	uint64_t updated_ns; /* CLOCK_MONOTONIC */
	char command[64];
	char purpose[64];
	struct txda__page_chip chip[TXDA__MAX_CHIPS];
};

/* The size of a page with @n chips. */
size_t txda__page_bytes(unsigned n);

struct txda__telemetry {
	int fd; /* -1: nothing is published */
	char path[256];
};

/*
 * Creates the page's file. -errno when there is no directory for it; the caller may continue
 * without.
 */
int txda__telemetry_open(struct txda__telemetry *telemetry);
/* Fills in the header's magic, sizes, process and checksum, and writes the page. */
int txda__telemetry_publish(struct txda__telemetry *telemetry, struct txda__page *page);
void txda__telemetry_close(struct txda__telemetry *telemetry);

/* Start time of a process, or -ESRCH. */
int txda__process_start(int pid, uint64_t *ret_start_time);
/* Effective user id of a process. */
int txda__process_user(int pid, unsigned *ret_uid);
/*
 * Directory @index of the list above, "" if it does not apply to this process; false past the
 * last.
 */
bool txda__telemetry_directory(unsigned index, char *path, size_t len);
/* Reads and checks a page; -ESRCH when its process is gone, -EBADMSG when it is invalid. */
int txda__telemetry_read(int dir_fd, const char *name, struct txda__page *ret_page);

#endif /* TXDA_TELEMETRY_H */
