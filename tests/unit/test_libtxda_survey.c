// SPDX-License-Identifier: MIT
/*
 * Telemetry pages and the survey: what others see, and what they do not fall for.
 *
 * Run as `test_libtxda_survey hold` it is the other process: it holds a chip until it is killed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "crc32c.h"
#include "libtxda_test.h"
#include "survey.h"
#include "telemetry.h"

static const char *self;
static char directory[300]; /* the runtime directory of this test */

/* The file of that name among the pages, until the next call. */
static const char *page_path(const char *name)
{
	static char path[400];

	snprintf(path, sizeof(path), "%s/txda/%s", directory, name);
	return path;
}

static int entries(void)
{
	struct dirent *entry;
	DIR *dir = opendir(page_path(""));
	int n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

/* The chip of @pid in a survey; -1 if there is none. */
static int find(struct txda_survey *survey, int pid, unsigned chip, struct txda_device_info *info,
		struct txda_device_status *status)
{
	char bus[32];

	snprintf(bus, sizeof(bus), "cmodel:%d:%u", pid, chip);
	for (int i = 0; i < txda_survey_chips(survey); i++) {
		*info = TXDA_INIT(struct txda_device_info);
		*status = TXDA_INIT(struct txda_device_status);
		ok(NULL, txda_survey_chip(survey, (unsigned)i, info, status));
		if (!strcmp(info->bus, bus))
			return i;
	}
	return -1;
}

TEST(test_own)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_process_info process = TXDA_INIT(struct txda_process_info);
	struct txda_device_info info;
	struct txda_device_status status;
	struct txda_context *context;
	struct txda_survey *survey;
	struct txda_buffer *buffer;
	struct txda_device *device;
	int chip;

	options.backend = "cmodel";
	options.cmodel = "chips=3,mem=64M,cores=1";
	options.visible_devices = "2";
	options.name = "own test";
	ok(NULL, txda_context_new(&options, &context));
	assert_int_equal(entries(), 1);
	device = device_of(context, 0);
	ok(context, txda_buffer_new(device, 5000, TXDA_MEMORY_DEVICE, 0, &buffer));
	for (unsigned tries = 0;; tries++) {
		ok(NULL, txda_survey_new(&survey));
		chip = find(survey, getpid(), 2, &info, &status);
		assert_true(chip >= 0);
		assert_int_equal(find(survey, getpid(), 0, &info, &status), -1);
		chip = find(survey, getpid(), 2, &info, &status);
		if (status.mem_used_bytes || tries > 100)
			break;
		txda_survey_unref(survey);
		usleep(50000);
	}
	assert_int_equal(status.mem_used_bytes, 8192);
	assert_int_equal(info.mem_bytes, 64 << 20);
	assert_int_equal(info.physical, 2);
	assert_true(info.caps & TXDA_CAP_CMODEL);
	assert_int_equal(status.utilisation_permille, 0);
	assert_int_equal(txda_survey_processes(survey, (unsigned)chip), 1);
	ok(NULL, txda_survey_process(survey, (unsigned)chip, 0, &process));
	assert_int_equal(process.pid, getpid());
	assert_string_equal(process.purpose, "own test");
	assert_says(process.command, "test_libtxda");
	assert_int_equal(process.mem_bytes, 8192);
	assert_int_equal(txda_survey_process(survey, (unsigned)chip, 1, &process), -ESRCH);
	assert_int_equal(txda_survey_chip(survey, 10000, &info, NULL), -ENODEV);
	assert_null(txda_survey_unref(survey));
	txda_buffer_unref(buffer);
	txda_context_unref(context);
	assert_int_equal(entries(), 0);
}

/*
 * Busy chips show their rate; after a while without work the monitor sleeps, and wakes when there
 * is some.
 */
TEST(test_rates)
{
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_context *context = open_context("mem=64M,cores=1");
	struct txda_buffer *a, *b;
	struct txda_device *device;
	struct txda_queue *queue;
	unsigned seen = 0;
	uint64_t fence;

	device = device_of(context, 0);
	ok(context, txda_queue_new(device, TXDA_QUEUE_COMPUTE, &queue));
	ok(context, txda_buffer_new(device, 16 << 20, TXDA_MEMORY_DEVICE, 0, &a));
	ok(context, txda_buffer_new(device, 16 << 20, TXDA_MEMORY_DEVICE, 0, &b));
	for (unsigned phase = 0; phase < 2; phase++) {
		uint64_t before;

		for (unsigned i = 0; i < 2000 && seen <= phase; i++) {
			ok(context, txda_queue_copy(queue, a, 0, b, 0, 16 << 20, &fence));
			ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
			ok(context, txda_device_status(device, &status));
			if (status.utilisation_permille != UINT32_MAX && status.bytes_written)
				seen = phase + 1;
		}
		assert_int_equal(seen, phase + 1);
		before = status.bytes_written;
		assert_true(before >= 16 << 20);
		if (!phase)
			usleep(3600000); /* long enough for the monitor to sleep */
	}
	txda_queue_unref(queue);
	txda_buffer_unref(a);
	txda_buffer_unref(b);
	txda_context_unref(context);
}

static pid_t start_other(void)
{
	int pipe_fd[2];
	char ready;
	pid_t pid;

	assert_int_equal(pipe(pipe_fd), 0);
	pid = fork();
	if (!pid) {
		dup2(pipe_fd[1], STDOUT_FILENO);
		execl(self, self, "hold", (char *)NULL);
		_exit(99);
	}
	close(pipe_fd[1]);
	assert_int_equal(read(pipe_fd[0], &ready, 1), 1);
	close(pipe_fd[0]);
	return pid;
}

TEST(test_killed)
{
	struct txda_device_info info;
	struct txda_device_status status;
	struct txda_survey *survey;
	struct txda_context *context;
	pid_t pid = start_other();
	siginfo_t dead;

	ok(NULL, txda_survey_new(&survey));
	assert_true(find(survey, pid, 0, &info, &status) >= 0);
	txda_survey_unref(survey);
	kill(pid, SIGKILL);
	/* Dead, but not yet waited for: its number still exists. */
	assert_int_equal(waitid(P_PID, (id_t)pid, &dead, WEXITED | WNOWAIT), 0);
	ok(NULL, txda_survey_new(&survey));
	assert_int_equal(find(survey, pid, 0, &info, &status), -1);
	txda_survey_unref(survey);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	ok(NULL, txda_survey_new(&survey));
	assert_int_equal(find(survey, pid, 0, &info, &status), -1);
	txda_survey_unref(survey);
	/* Its page lies about until the next one comes. */
	assert_int_equal(entries(), 1);
	context = open_context("mem=64M,cores=1");
	assert_int_equal(entries(), 1);
	txda_context_unref(context);
	assert_int_equal(entries(), 0);
}

static void put_page(const char *name, const void *data, size_t bytes)
{
	FILE *file = fopen(page_path(name), "w");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	fclose(file);
}

/* A page of this process. */
static struct txda__page *new_page(unsigned chips)
{
	struct txda__page *page = calloc(1, sizeof(*page));

	page->magic = TXDA__PAGE_MAGIC;
	page->version = TXDA__PAGE_VERSION;
	page->n_chips = chips;
	page->bytes = (uint32_t)txda__page_bytes(chips);
	page->pid = getpid();
	assert_int_equal(txda__process_start(getpid(), &page->start_time), 0);
	return page;
}

static void seal(struct txda__page *page)
{
	page->crc32c = 0;
	page->crc32c = crc32c(0, page, page->bytes);
}

static int read_with(const struct txda__page *page, size_t bytes)
{
	struct txda__page *got = calloc(1, sizeof(*got));
	int fd, r;

	put_page("chips-1-1", page, bytes);
	fd = open(page_path(""), O_RDONLY | O_DIRECTORY);
	r = txda__telemetry_read(fd, "chips-1-1", got);
	if (!r) {
		assert_true(got->n_chips <= TXDA__MAX_CHIPS);
		for (unsigned i = 0; i < got->n_chips; i++) {
			assert_true(strlen(got->chip[i].name) < sizeof(got->chip[i].name));
			assert_null(strchr(got->chip[i].name, '\033'));
			assert_true(got->chip[i].mem_used_bytes <= got->chip[i].mem_bytes);
		}
	}
	close(fd);
	free(got);
	return r;
}

static int read_sealed(struct txda__page *page)
{
	seal(page);
	return read_with(page, page->bytes);
}

/* Pages that lie. */
TEST(test_hostile_pages)
{
	static const char *const names[] = {"chips-1-1", "chips-2-2", "chips-3-3", "chips-4-4x"};
	struct txda__page *page = new_page(2);
	struct txda_survey *survey;

	memset(page->chip[0].name, 'x', sizeof(page->chip[0].name));
	strcpy(page->chip[1].name, "\033[2Jgone\n");
	page->chip[1].mem_used_bytes = UINT64_MAX;
	page->chip[1].mem_bytes = 5;
	page->chip[1].utilisation_permille = 5000;
	assert_int_equal(read_sealed(page), 0);
	assert_int_equal(read_with(page, page->bytes - 1), -EBADMSG);
	assert_int_equal(read_with(page, 3), -EBADMSG);
	assert_int_equal(read_with(page, 0), -EBADMSG);
	page->chip[1].cores ^= 1; /* torn */
	assert_int_equal(read_with(page, page->bytes), -EBADMSG);
	page->n_chips = 65;
	page->bytes = (uint32_t)txda__page_bytes(64);
	seal(page);
	assert_int_equal(read_with(page, sizeof(*page)), -EBADMSG);
	page->n_chips = 2;
	seal(page);
	assert_int_equal(read_with(page, sizeof(*page)), -EBADMSG);
	page->bytes = (uint32_t)txda__page_bytes(2);
	page->version = 2;
	assert_int_equal(read_sealed(page), -EBADMSG);
	page->version = TXDA__PAGE_VERSION;
	page->start_time++; /* the number was used again */
	assert_int_equal(read_sealed(page), -ESRCH);
	page->start_time--;
	page->pid = -1;
	assert_int_equal(read_sealed(page), -ESRCH);
	page->pid = getpid();
	if (geteuid() == 0) {
		/* Somebody else's file does not speak for this process. */
		assert_int_equal(read_sealed(page), 0);
		assert_int_equal(chown(page_path("chips-1-1"), 65534, 65534), 0);
		assert_int_equal(read_with(page, page->bytes), -EPERM);
	}
	/* What is no page, a survey passes by. */
	assert_int_equal(mkfifo(page_path(names[1]), 0600), 0);
	put_page(names[2], "rubbish", 7);
	put_page(names[3], "rubbish", 7);
	ok(NULL, txda_survey_new(&survey));
	txda_survey_unref(survey);
	for (unsigned i = 0; i < 4; i++)
		unlink(page_path(names[i]));
	free(page);
}

/* A user who fills the directory of its pages does not delay everybody's survey. */
TEST(test_full_directory)
{
	enum { N = TXDA__SURVEY_MAX_ENTRIES + 40 };
	struct txda__page *page = new_page(1);
	struct txda_survey *survey, mine = {0};
	struct txda_device_info info;
	unsigned seen = 0;
	char name[32];

	strcpy(page->chip[0].bus, "one of many");
	seal(page);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "chips-1-%u", i);
		put_page(name, page, page->bytes);
	}
	ok(NULL, txda_survey_new(&survey));
	for (int i = 0; i < txda_survey_chips(survey); i++) {
		info = TXDA_INIT(struct txda_device_info);
		ok(NULL, txda_survey_chip(survey, (unsigned)i, &info, NULL));
		seen += !strcmp(info.bus, "one of many");
	}
	txda_survey_unref(survey);
	assert_in_range(seen, 1, TXDA__SURVEY_MAX_ENTRIES);

	/* Nor does one who makes directories in the name of others. */
	ok(NULL, txda__survey_pages(&mine, page_path(""), geteuid() + 1));
	assert_int_equal(mine.n_chips, 0);
	ok(NULL, txda__survey_pages(&mine, page_path(""), geteuid()));
	assert_true(mine.n_chips > 0);
	free(mine.chip);
	free(mine.process);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "chips-1-%u", i);
		unlink(page_path(name));
	}
	free(page);
}

/* A directory that anybody may write to is not used; all works without. */
TEST(test_no_directory)
{
	struct txda_context *context;

	if (geteuid() == 0 && !access("/run/txda", F_OK))
		skip();
	assert_int_equal(chmod(page_path(""), 0777), 0);
	context = open_context("mem=64M,cores=1");
	assert_int_equal(entries(), 0);
	txda_context_unref(context);
	assert_int_equal(chmod(page_path(""), 0755), 0);
}

/* ---- a made-up sysfs ------------------------------------------------------------------------- */

static void put(const char *root, const char *name, const char *text)
{
	char path[600], *slash;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void put_link(const char *root, const char *target, const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

static void put_nodes(const char *sys, const char *dev)
{
	put(sys, "devices/0000:01:00.0/serial", "TX8-0042\n");
	put(sys, "devices/0000:01:00.0/card", "8000000000000001\n");
	put(sys, "devices/0000:01:00.0/fw_version", "1.2.3\n");
	put(sys, "devices/0000:01:00.0/npu_memory_total", "8589934592\n");
	put(sys, "devices/0000:01:00.0/npu_memory_utilization", "1048576\n");
	put(sys, "devices/0000:01:00.0/npu_busy_time_us", "3700\n");
	put(sys, "devices/0000:01:00.0/state", "up\n");
	put(sys, "devices/0000:02:00.0/state", "up\n"); /* but it does not answer */
	put(sys, "devices/0000:04:00.0/npu_busy_time_us", "0\n");
	put(sys, "devices/0000:04:00.0/state", "wedged\n");
	put(sys, "devices/0000:01:00.0/hwmon/hwmon3/temp1_input", "45500\n");
	put(sys, "devices/0000:01:00.0/hwmon/hwmon3/power1_input", "12500000\n");
	put(sys, "devices/0000:02:00.0/serial", "\033[2J\n");
	put(sys, "devices/0000:02:00.0/card", "000000000000000a\n");
	put(sys, "devices/0000:02:00.0/card_index", "1\n");
	put(sys, "devices/0000:04:00.0/card", "000000000000000a\n");
	put(sys, "devices/0000:04:00.0/chip_name", "TX8 (model)\n");
	put(sys, "devices/0000:04:00.0/ecc_corrected", "17\n");
	put(sys, "devices/0000:04:00.0/card_index", "0\n");
	put(sys, "module/txda/version", "1.0.0\n");
	put(sys, "devices/0000:02:00.0/npu_memory_total", "lots\n");
	put(sys, "devices/0000:03:00.0/serial", "other\n");
	put(sys, "drivers/txda/x", "");
	put(sys, "drivers/other/x", "");
	put(sys, "class/accel/accel10/x", "");
	put(sys, "class/accel/accel2/x", "");
	put(sys, "class/accel/accel3/x", "");
	put(sys, "class/accel/accel4/x", "");
	put(sys, "class/accel/accelerando/x", "");
	/* A container sees it in sysfs, and was not given it. */
	put(sys, "class/accel/accel5/x", "");
	put_link(sys, "../../../devices/0000:01:00.0", "class/accel/accel5/device");
	put(dev, "accel/accel10", "");
	put(dev, "accel/accel2", "");
	put(dev, "accel/accel3", "");
	put(dev, "accel/accel4", "");
	put_link(sys, "../../../devices/0000:01:00.0", "class/accel/accel10/device");
	put_link(sys, "../../../devices/0000:02:00.0", "class/accel/accel2/device");
	put_link(sys, "../../../devices/0000:03:00.0", "class/accel/accel3/device");
	put_link(sys, "../../../devices/0000:04:00.0", "class/accel/accel4/device");
	put_link(sys, "../../drivers/txda", "devices/0000:04:00.0/driver");
	put_link(sys, "../../drivers/txda", "devices/0000:01:00.0/driver");
	put_link(sys, "../../drivers/txda", "devices/0000:02:00.0/driver");
	put_link(sys, "../../drivers/other", "devices/0000:03:00.0/driver");
}

static void put_processes(const char *proc)
{
	put(proc, "77/comm", "txdad\n");
	put(proc, "77/fd/x", "");
	/* The same client by two descriptors. */
	for (unsigned i = 5; i <= 6; i++) {
		char path[32];

		snprintf(path, sizeof(path), "77/fdinfo/%u", i);
		put(proc, path,
		    "pos:\t0\ndrm-driver:\ttxda\ndrm-pdev:\t0000:01:00.0\ndrm-client-id:\t9\n"
		    "drm-client-name:\tserver\ndrm-engine-compute:\t1500 ns\n"
		    "drm-engine-copy:\t500 ns\ndrm-resident-vram:\t2 MiB\n"
		    "drm-resident-memory:\t7 MiB\n");
	}
	put(proc, "77/fdinfo/7", "drm-driver:\tother\ndrm-pdev:\t0000:01:00.0\n");
	put_link(proc, "/dev/accel/accel10", "77/fd/5");
	put_link(proc, "/dev/accel/accel10", "77/fd/6");
	put_link(proc, "/dev/accel/accel3", "77/fd/7");
	put_link(proc, "/dev/null", "77/fd/8");
	put(proc, "self-not/comm", "x");
}

TEST(test_nodes)
{
	struct txda_survey *survey = calloc(1, sizeof(*survey));
	struct txda_process_info process = TXDA_INIT(struct txda_process_info);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	char sys[320], dev[320], proc[320], command[1000];

	snprintf(sys, sizeof(sys), "%s/sys", directory);
	snprintf(dev, sizeof(dev), "%s/dev", directory);
	snprintf(proc, sizeof(proc), "%s/proc", directory);
	mkdir(dev, 0755);
	mkdir(sys, 0755);
	mkdir(proc, 0755);
	put_nodes(sys, dev);
	put_processes(proc);
	assert_int_equal(txda__survey_nodes(survey, sys, dev, proc), 0);
	/* By card, then by the place on it, whatever the nodes' numbers. */
	assert_int_equal(txda_survey_chips(survey), 3);
	ok(NULL, txda_survey_chip(survey, 0, &info, &status));
	assert_string_equal(info.node, "/dev/accel/accel4");
	assert_string_equal(info.name, "TX8 (model)");
	assert_int_equal(status.ecc_corrected, 17);
	assert_true(status.lost);
	ok(NULL, txda_survey_chip(survey, 2, &info, &status));
	assert_string_equal(info.node, "/dev/accel/accel10");
	assert_int_equal(info.physical, 2);
	assert_string_equal(info.firmware, "1.2.3");
	assert_string_equal(info.driver, "1.0.0");
	assert_string_equal(info.bus, "0000:01:00.0");
	assert_string_equal(info.serial, "TX8-0042");
	assert_int_equal(info.mem_bytes, 8589934592);
	assert_int_equal(status.mem_used_bytes, 1048576);
	assert_int_equal(status.busy_ns, 3700000);
	assert_int_equal(status.utilisation_permille, UINT32_MAX);
	assert_false(status.lost);
	assert_int_equal(status.temp_mc, 45500);
	assert_int_equal(status.power_mw, 12500);
	assert_int_equal(status.clock_khz, UINT32_MAX);
	assert_int_equal(txda_survey_processes(survey, 2), 1);
	ok(NULL, txda_survey_process(survey, 2, 0, &process));
	assert_int_equal(process.pid, 77);
	assert_string_equal(process.purpose, "server");
	assert_string_equal(process.command, "txdad");
	assert_int_equal(process.mem_bytes, 2 << 20);
	assert_int_equal(process.busy_ns, 2000);
	ok(NULL, txda_survey_chip(survey, 1, &info, &status));
	assert_string_equal(info.node, "/dev/accel/accel2");
	assert_null(strchr(info.serial, '\033'));
	assert_int_equal(info.mem_bytes, 0);
	assert_int_equal(status.temp_mc, INT32_MIN);
	assert_true(status.lost);
	txda_survey_unref(survey);
	snprintf(command, sizeof(command), "rm -rf '%s' '%s' '%s'", sys, dev, proc);
	assert_int_equal(system(command), 0);
}

static int hold(void)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_context *context;

	options.backend = "cmodel";
	options.cmodel = "mem=64M,cores=1";
	if (txda_context_new(&options, &context) < 0)
		return 1;
	if (write(STDOUT_FILENO, "r", 1) != 1)
		return 2;
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	int r;

	if (argc == 2 && !strcmp(argv[1], "hold"))
		return hold();
	self = argv[0];
	snprintf(directory, 200, "%s/txda-survey-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(directory)) {
		perror(directory);
		return 1;
	}
	setenv("XDG_RUNTIME_DIR", directory, 1);
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	r = run_unit_tests(argv[0], NULL, NULL);
	rmdir(page_path(""));
	rmdir(directory);
	return r;
}
